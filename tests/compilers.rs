//! Tests of every kernel without a device: naga translates it for each system, and it avoids known defects of drivers
//! and compilers.

use std::collections::BTreeMap;

use lapwing_tensor::check::{KernelVariant, kernel_variants};
use lapwing_tests::translation::Translation;
use naga::{AddressSpace, Expression, Module, Statement, TypeInner};

#[test]
fn every_kernel_is_translated_for_every_system() {
    let mut hlsl_5 = 0;
    let all = kernel_variants();
    for variant in &all {
        let name = &variant.name;
        let translation =
            Translation::of(variant).unwrap_or_else(|error| panic!("{name}: {error}"));
        hlsl_5 += usize::from(translation.hlsl_5.is_some());
        // The magic number, and the entry point under the name that naga gives it.
        assert_eq!(translation.spirv[0], 0x0723_0203, "{name}");
        let entry = &variant.entry;
        assert!(
            translation.msl.contains(&format!("kernel void {entry}")),
            "{name}"
        );
        assert!(
            translation.hlsl_6.contains(&format!("void {entry}")),
            "{name}"
        );
    }
    // All but those that exchange values within a subgroup, which FXC does not support.
    let exchanging = |variant: &&KernelVariant| variant.text.contains("subgroupShuffle");
    assert_eq!(hlsl_5, all.len() - all.iter().filter(exchanging).count());
    assert!(hlsl_5 > 500, "{hlsl_5}");
}

fn parsed(variant: &KernelVariant) -> Module {
    naga::front::wgsl::parse_str(&variant.text)
        .unwrap_or_else(|error| panic!("{}: {error}", variant.name))
}

/// Returns each function of a module.
fn functions(module: &Module) -> impl Iterator<Item = &naga::Function> {
    let own = module.functions.iter().map(|(_, function)| function);
    own.chain(module.entry_points.iter().map(|entry| &entry.function))
}

/// Returns every statement of a block and of its inner blocks.
fn each_statement<'a>(block: &'a naga::Block, visit: &mut dyn FnMut(&'a Statement)) {
    for statement in block.iter() {
        visit(statement);
        match statement {
            Statement::Block(inner) => each_statement(inner, visit),
            Statement::If { accept, reject, .. } => {
                each_statement(accept, visit);
                each_statement(reject, visit);
            }
            Statement::Switch { cases, .. } => {
                cases
                    .iter()
                    .for_each(|case| each_statement(&case.body, visit));
            }
            Statement::Loop {
                body, continuing, ..
            } => {
                each_statement(body, visit);
                each_statement(continuing, visit);
            }
            _ => {}
        }
    }
}

/// Returns the target of a pointer: a global or local variable, and whether its last step is into a vector.
fn is_component(
    module: &Module,
    function: &naga::Function,
    pointer: naga::Handle<Expression>,
) -> bool {
    let (Expression::Access { base, .. } | Expression::AccessIndex { base, .. }) =
        function.expressions[pointer]
    else {
        return false;
    };
    let is_vector =
        |ty: naga::Handle<naga::Type>| matches!(module.types[ty].inner, TypeInner::Vector { .. });
    leads_to(module, function, base).is_some_and(is_vector)
}

/// Returns the type of a pointer's target.
fn leads_to(
    module: &Module,
    function: &naga::Function,
    pointer: naga::Handle<Expression>,
) -> Option<naga::Handle<naga::Type>> {
    match function.expressions[pointer] {
        Expression::GlobalVariable(global) => Some(module.global_variables[global].ty),
        Expression::LocalVariable(local) => Some(function.local_variables[local].ty),
        Expression::FunctionArgument(place) => {
            match module.types[function.arguments[place as usize].ty].inner {
                TypeInner::Pointer { base, .. } => Some(base),
                _ => None,
            }
        }
        Expression::Access { base, .. } => {
            match module.types[leads_to(module, function, base)?].inner {
                TypeInner::Array { base, .. } => Some(base),
                _ => None,
            }
        }
        Expression::AccessIndex { base, index } => {
            match &module.types[leads_to(module, function, base)?].inner {
                TypeInner::Array { base, .. } => Some(*base),
                TypeInner::Struct { members, .. } => Some(members[index as usize].ty),
                _ => None,
            }
        }
        _ => None,
    }
}

/// A store to one component of a vector may write the whole vector (Metal), is refused with a dynamic index (FXC, issue
/// 8334 of gfx-rs' GPU library), and races with the threads that own the neighbours.
#[test]
fn no_kernel_stores_a_part_of_a_vector() {
    for variant in kernel_variants() {
        let module = parsed(&variant);
        for function in functions(&module) {
            each_statement(&function.body, &mut |statement| {
                if let Statement::Store { pointer, .. } = statement {
                    assert!(
                        !is_component(&module, function, *pointer),
                        "{}",
                        variant.name
                    );
                }
            });
        }
    }
}

/// Metal has compiled broadcasting barriers wrongly (issue 4500 of gfx-rs' GPU library), float atomics add in any
/// order, `dx` is a namespace in HLSL since DXC of 2025, which naga does not reserve, a variable of a
/// loop has the value of the round before in browsers unless it is given one, and a loop must end for any buffer content:
/// it counts towards a bound.
#[test]
fn no_kernel_uses_what_compilers_get_wrong() {
    for variant in kernel_variants() {
        for word in [
            "workgroupUniformLoad",
            "atomic",
            " dx:",
            "loop",
            "while",
            "enable ",
        ] {
            let code = |line: &str| line.split("//").next().unwrap_or_default().contains(word);
            assert!(
                !variant.text.lines().any(code),
                "{} has {word}",
                variant.name
            );
        }
        // Browsers leave what the round before wrote. A line of a loop is indented at least twice.
        let without_value = |line: &&str| {
            line.starts_with("        ") && line.trim().starts_with("var ") && !line.contains('=')
        };
        assert_eq!(
            variant.text.lines().find(without_value),
            None,
            "{}",
            variant.name
        );
        for header in variant
            .text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("for ("))
        {
            let parts: Vec<_> = header.split(';').map(str::trim).collect();
            let counter = parts[0]
                .strip_prefix("var ")
                .unwrap()
                .split(' ')
                .next()
                .unwrap();
            let steps = |by: &str| parts[2].starts_with(&format!("{counter}{by}"));
            assert!(
                parts.len() == 3
                    && ["< ", "> 0u"]
                        .iter()
                        .any(|to| parts[1].starts_with(&format!("{counter} {to}")))
                    && (steps(" += ") || steps("++") || steps(" /= ")),
                "{}: for ({header}",
                variant.name
            );
        }
    }
}

/// The limits that WebGPU guarantees everywhere.
#[test]
fn every_kernel_fits_every_adapter() {
    let mut largest = BTreeMap::new();
    for variant in kernel_variants() {
        let (name, module) = (&variant.name, parsed(&variant));
        let info = naga::valid::Validator::new(
            naga::valid::ValidationFlags::all(),
            naga::valid::Capabilities::all(),
        )
        .validate(&module)
        .unwrap();
        let place = module
            .entry_points
            .iter()
            .position(|entry| entry.name == variant.entry)
            .unwrap();
        let threads: u32 = module.entry_points[place].workgroup_size.iter().product();
        // Tint takes each member of a struct for varying, and refuses barriers behind it.
        let mut arguments = module.entry_points[place].function.arguments.iter();
        assert!(arguments.all(|a| a.binding.is_some()), "{name}: a struct");
        let (mut buffers, mut shared, mut params) = (0, 0, 0);
        for (handle, global) in module.global_variables.iter() {
            if info.get_entry_point(place)[handle].is_empty() {
                continue;
            }
            let size = module.types[global.ty].inner.size(module.to_ctx());
            match global.space {
                AddressSpace::Storage { .. } => buffers += 1,
                AddressSpace::WorkGroup => shared += size,
                AddressSpace::Immediate | AddressSpace::Uniform => params += size,
                _ => {}
            }
        }
        assert!(threads <= 256, "{name}: {threads} threads");
        assert!(shared <= 16 << 10, "{name}: {shared} bytes shared");
        assert!(
            (4..=128).contains(&params),
            "{name}: {params} bytes of parameters"
        );
        // Metal uses one of its eight for the sizes of the others.
        assert!((1..=7).contains(&buffers), "{name}: {buffers} buffers");
        for (what, size) in [
            ("threads", threads),
            ("shared", shared),
            ("params", params),
            ("buffers", buffers),
        ] {
            let most = largest.entry(what).or_insert(0);
            *most = size.max(*most);
        }
    }
    // Some kernel reaches each bound, so the test does count.
    assert_eq!(
        (largest["threads"], largest["params"], largest["buffers"]),
        (256, 108, 7)
    );
    assert!(largest["shared"] >= 8 << 10, "{largest:?}");
}
