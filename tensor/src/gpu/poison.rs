//! Shared memory holds whatever was in it when a group begins: nothing clears it for us, as that costs time on some drivers and is
//! done wrongly by others. So a kernel must write before it reads; a device that poisons its buffers makes that show, by a few lines
//! at the start of each kernel that has shared memory.

/// A shader whose kernel `entry` first fills what its group shares with large numbers.
///
/// # Panics
/// If the shader is not written as ours are.
pub(super) fn with_nonsense(text: &str, entry: &str) -> String {
    let shared: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("var<workgroup> "))
        .collect();
    if shared.is_empty() {
        return text.to_owned();
    }
    let head = text
        .find(&format!("fn {entry}("))
        .expect("the kernel that is asked for");
    let body = head + text[head..].find(") {\n").expect("its body") + ") {\n".len();
    let size = text[..head].rfind("@workgroup_size").expect("its size");
    let threads = between(&text[size..head], "(", ")");
    let local = between(&text[head..body], "@builtin(local_invocation_index) ", ":");
    let mut fill = String::new();
    for line in shared {
        let (name, kind) = line.split_once(": array<").expect("an array");
        let (kind, length) = kind
            .trim_end_matches(">;")
            .rsplit_once(", ")
            .expect("its length");
        fill += &format!(
            "    for (var nonsense = {local}; nonsense < {length}; nonsense += {threads}) {{ {name}[nonsense] = {}; }}\n",
            value(text, kind)
        );
    }
    format!(
        "{}{fill}    workgroupBarrier();\n{}",
        &text[..body],
        &text[body..]
    )
}

/// What stands between two texts.
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let (_, rest) = text
        .split_once(before)
        .unwrap_or_else(|| panic!("no {before}"));
    rest.split_once(after).expect("its end").0
}

/// A value of a type, far from any that is right.
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
    fn each_kind_of_memory_is_filled_before_a_kernel_begins() {
        let text = "struct Pair {\n    a: f32,\n    b: u32,\n}\nalias Shared = Pair;\nvar<workgroup> x: array<Shared, N>;\n\
                    var<workgroup> y: array<vec4<f32>, 8u * M>;\n@compute @workgroup_size(N)\n\
                    fn other() {\n}\n@compute @workgroup_size(8)\nfn run(@builtin(local_invocation_index) me: u32) {\n    go();\n}\n";
        let filled = with_nonsense(text, "run");
        let wanted = "u32) {\n    for (var nonsense = me; nonsense < N; nonsense += 8) { x[nonsense] = Pair(1e30, 0x7badbad7u); }\n    \
                      for (var nonsense = me; nonsense < 8u * M; nonsense += 8) { y[nonsense] = vec4<f32>(1e30); }\n    \
                      workgroupBarrier();\n    go();\n}\n";
        assert!(filled.ends_with(wanted), "{filled}");
        assert_eq!(with_nonsense("fn a() {\n}", "a"), "fn a() {\n}");
    }

    /// A kernel that adds to what it shares without having written it, as one that trusts in zeros would.
    #[test]
    fn a_kernel_that_reads_before_it_writes_shows() {
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
