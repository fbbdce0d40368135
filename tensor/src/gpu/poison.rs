//! Poisoning of workgroup memory. It is uninitialised when a workgroup starts, since clearing it costs time on some
//! drivers and does not work on others. A device that poisons its buffers adds lines to each kernel that fill workgroup
//! memory with large numbers, so that a read before the first write changes the result.

/// Adds the poisoning of workgroup memory to the kernel `entry`.
/// Panics if the shader is not formatted as those in `shaders/`.
pub(super) fn with_poison(text: &str, entry: &str) -> String {
    let shared: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("var<workgroup> "))
        .collect();
    if shared.is_empty() {
        return text.to_owned();
    }
    let head_at = text.find(&format!("fn {entry}(")).expect("the entry point");
    let body = head_at + text[head_at..].find("{\n").expect("its body") + 2;
    let size = text[..head_at].rfind("@workgroup_size").expect("its size");
    let threads = between(&text[size..head_at], "(", ")");
    let mut fill = String::new();
    for line in shared {
        let (name, kind) = line.split_once(": array<").expect("an array");
        let (kind, length) = kind
            .trim_end_matches(">;")
            .rsplit_once(", ")
            .expect("its length");
        fill += &format!(
            "    for (var poison = local; poison < {length}; poison += {threads}) {{ {name}[poison] = {}; }}\n",
            value(text, kind)
        );
    }
    format!(
        "{}{fill}    workgroupBarrier();\n{}",
        &text[..body],
        &text[body..]
    )
}

/// The text between two texts.
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let (_, rest) = text
        .split_once(before)
        .unwrap_or_else(|| panic!("no {before} in the shader"));
    rest.split_once(after).expect("its end").0
}

/// A value of this type that no kernel computes.
fn value(text: &str, kind: &str) -> String {
    if let Some(other) = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("alias {kind} = ")))
    {
        return value(text, other.trim_end_matches(';'));
    }
    match kind {
        "f32" => "1e30".to_owned(),
        "u32" => "0x7badbad7u".to_owned(),
        _ if kind.starts_with("vec") => format!("{kind}(1e30)"),
        _ => {
            let members = between(text, &format!("struct {kind} {{\n"), "}");
            let one = |line: &str| {
                let (_, kind) = line.trim().trim_end_matches(',').split_once(": ")?;
                Some(value(text, kind))
            };
            let values: Vec<_> = members.lines().filter_map(one).collect();
            format!("{kind}({})", values.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Gpu, GpuOptions, Tensor};

    #[test]
    fn each_type_of_memory_is_filled_before_a_kernel_starts() {
        let text = "struct Pair {\n    a: f32,\n    b: u32,\n}\nalias Shared = Pair;\nvar<workgroup> x: array<Shared, N>;\n\
                    var<workgroup> y: array<vec4<f32>, 8u * M>;\n@compute @workgroup_size(N)\n\
                    fn other() {\n}\n@compute @workgroup_size(8)\nfn run(@builtin(local_invocation_index) local: u32) {\n    go();\n}\n";
        let filled = with_poison(text, "run");
        let wanted = "local: u32) {\n    for (var poison = local; poison < N; poison += 8) { x[poison] = Pair(1e30, 0x7badbad7u); }\n    \
                      for (var poison = local; poison < 8u * M; poison += 8) { y[poison] = vec4<f32>(1e30); }\n    \
                      workgroupBarrier();\n    go();\n}\n";
        assert!(filled.ends_with(wanted), "{filled}");
        assert_eq!(with_poison("fn a() {\n}", "a"), "fn a() {\n}");
    }

    /// The broken kernel adds to workgroup memory as if it were zero at the start.
    #[test]
    fn a_read_before_the_first_write_changes_the_result() {
        let sum = |wrong: bool| {
            let options = GpuOptions {
                poison: true,
                ..GpuOptions::default()
            };
            let gpu = Gpu::open(options)
                .unwrap()
                .with_caps(|caps| caps.is_software = false);
            if wrong {
                let (right, wrong) = (
                    "shared_values[local] = own;",
                    "shared_values[local] = combine(shared_values[local], own);",
                );
                gpu.miscompile("norm", right, wrong);
            }
            let x = Tensor::full(&gpu, &[2, 64], 2.0);
            let weight = Tensor::full(&gpu, &[64], 1.0);
            x.rms_norm(&weight, 0.0).to_vec().unwrap()[0]
        };
        assert!((sum(false) - 1.0).abs() < 1e-6);
        assert!(sum(true).abs() < 1e-3);
    }
}
