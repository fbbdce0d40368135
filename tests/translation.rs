//! Translates a shader with naga for the drivers of other systems, with the settings of the GPU library.

use naga::back::{hlsl, msl, spv};
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ValidationFlags, Validator};
use naga::{AddressSpace, Module, ResourceBinding, ShaderStage};

use lapwing_tensor::check::KernelVariant;

/// One kernel in the languages of the vendors.
pub struct Translation {
    /// For Vulkan.
    pub spirv: Vec<u32>,
    /// For Metal.
    pub msl: String,
    /// For Direct3D 12 with its old compiler, FXC, which has no subgroups.
    pub hlsl_5: Option<String>,
    /// For Direct3D 12 with its new compiler, DXC.
    pub hlsl_6: String,
}

/// The binding of the parameters: after all buffers.
const PARAMS: u32 = 8;
/// The binding of the buffer sizes on Metal, and of the number of workgroups on Direct3D.
const EXTRA: u32 = 9;

impl Translation {
    /// Translates one kernel, without bounds checks, as the program requests it.
    ///
    /// # Errors
    /// naga's error, with the name of the language.
    pub fn of(variant: &KernelVariant) -> Result<Translation, String> {
        let module = naga::front::wgsl::parse_str(&variant.text)
            .map_err(|error| format!("wgsl: {}", error.emit_to_string(&variant.text)))?;
        let mut capabilities = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
        capabilities.set(Capabilities::IMMEDIATES, variant.dialect.immediates);
        capabilities.set(
            Capabilities::SUBGROUP | Capabilities::SHADER_INT64,
            variant.dialect.extended,
        );
        let info = Validator::new(ValidationFlags::all(), capabilities)
            .validate(&module)
            .map_err(|error| format!("wgsl: {}", error.emit_to_string(&variant.text)))?;
        let asks = Asked {
            module: &module,
            info: &info,
            entry: &variant.entry,
        };
        let exchanges = variant.text.contains("subgroupShuffle");
        let told = |language: &'static str| move |error: String| format!("{language}: {error}");
        Ok(Translation {
            spirv: asks.spirv().map_err(told("SPIR-V"))?,
            msl: asks.msl().map_err(told("MSL"))?,
            hlsl_5: match exchanges {
                true => None,
                false => Some(
                    asks.hlsl(hlsl::ShaderModel::V5_1)
                        .map_err(told("HLSL 5.1"))?,
                ),
            },
            hlsl_6: asks
                .hlsl(hlsl::ShaderModel::V6_0)
                .map_err(told("HLSL 6.0"))?,
        })
    }
}

/// A kernel during its translation.
struct Asked<'a> {
    module: &'a Module,
    info: &'a naga::valid::ModuleInfo,
    entry: &'a str,
}

impl Asked<'_> {
    fn entry_point(&self) -> Option<(ShaderStage, String)> {
        Some((ShaderStage::Compute, self.entry.to_owned()))
    }

    /// Returns the binding of each buffer, and whether kernels write it.
    fn bindings(&self) -> impl Iterator<Item = (ResourceBinding, bool)> {
        self.module
            .global_variables
            .iter()
            .filter_map(|(_, global)| {
                let writes = matches!(
                    global.space,
                    AddressSpace::Storage { access } if access.contains(naga::StorageAccess::STORE)
                );
                Some((global.binding?, writes))
            })
    }

    fn spirv(&self) -> Result<Vec<u32>, String> {
        let options = spv::Options {
            lang_version: (1, 3),
            flags: spv::WriterFlags::empty(),
            zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
            force_loop_bounding: false,
            bounds_check_policies: unchecked(),
            ..spv::Options::default()
        };
        let pipeline = spv::PipelineOptions {
            shader_stage: ShaderStage::Compute,
            entry_point: self.entry.to_owned(),
        };
        spv::write_vec(self.module, self.info, &options, Some(&pipeline)).map_err(|e| e.to_string())
    }

    fn msl(&self) -> Result<String, String> {
        let slot = |(binding, mutable): (ResourceBinding, bool)| {
            let target = msl::BindTarget {
                buffer: Some(binding.binding as u8),
                texture: Some(binding.binding as u8),
                mutable,
                ..msl::BindTarget::default()
            };
            (binding, target)
        };
        let resources = msl::EntryPointResources {
            resources: self.bindings().map(slot).collect(),
            immediates_buffer: Some(PARAMS as u8),
            sizes_buffer: Some(EXTRA as u8),
        };
        let options = msl::Options {
            // macOS 12, the oldest version that every Mac with Apple silicon can be updated to.
            lang_version: (2, 4),
            per_entry_point_map: [(self.entry.to_owned(), resources)].into(),
            fake_missing_bindings: false,
            bounds_check_policies: unchecked(),
            zero_initialize_workgroup_memory: false,
            force_loop_bounding: false,
            ..msl::Options::default()
        };
        let pipeline = msl::PipelineOptions {
            entry_point: self.entry_point(),
            ..msl::PipelineOptions::default()
        };
        let (text, translated) = msl::write_string(self.module, self.info, &options, &pipeline)
            .map_err(|e| e.to_string())?;
        all_written(translated.entry_point_names)?;
        Ok(text)
    }

    fn hlsl(&self, shader_model: hlsl::ShaderModel) -> Result<String, String> {
        let target = |register, space| hlsl::BindTarget {
            register,
            space,
            ..hlsl::BindTarget::default()
        };
        let options = hlsl::Options {
            shader_model,
            binding_map: self
                .bindings()
                .map(|(binding, _)| (binding, target(binding.binding, 0)))
                .collect(),
            fake_missing_bindings: false,
            special_constants_binding: Some(target(EXTRA, 1)),
            immediates_target: Some(target(PARAMS, 1)),
            zero_initialize_workgroup_memory: false,
            restrict_indexing: false,
            force_loop_bounding: false,
            ..hlsl::Options::default()
        };
        let pipeline = hlsl::PipelineOptions {
            entry_point: self.entry_point(),
        };
        let mut text = String::new();
        let written = hlsl::Writer::new(&mut text, &options, &pipeline)
            .write(self.module, self.info, None)
            .map_err(|e| e.to_string())?;
        all_written(written.entry_point_names)?;
        Ok(text)
    }
}

fn unchecked() -> BoundsCheckPolicies {
    let policy = BoundsCheckPolicy::Unchecked;
    BoundsCheckPolicies {
        index: policy,
        buffer: policy,
        image_load: policy,
        binding_array: policy,
    }
}

/// The writers report the errors of each entry point separately.
fn all_written<E: ToString>(entries: Vec<Result<String, E>>) -> Result<(), String> {
    entries
        .into_iter()
        .try_for_each(|entry| entry.map(drop).map_err(|e| e.to_string()))
}
