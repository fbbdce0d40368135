//! `lapwing bench`: the speed of this device.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::Result;
use lapwing_lab::bench::{self, BenchReport};
use lapwing_lab::doctor::{Finding, diagnose};
use lapwing_model::write_atomically;
use lapwing_tensor::Gpu;
use lapwing_train::Config;
use lapwing_train::record::{exists, write_error};

use crate::args::{self, BenchArgs, DeviceArgs};
use crate::commands::doctor;
use crate::hub::hub;
use crate::out;
use crate::progress::Terminal;

pub fn bench(device: DeviceArgs, arguments: &BenchArgs) -> Result<()> {
    let config = arguments.model.as_deref().map(|text| {
        let model = args::model_setting(text)?;
        anyhow::Ok(Config::load(&arguments.preset, &[model])?)
    });
    let config = config.transpose()?;
    let report_to = arguments.report.as_deref();
    // Before measuring, which takes a while. Nothing stays if that fails or is interrupted.
    report_to.map(check_new).transpose()?;
    let gpu = device.open()?;
    let read = |path| BenchReport::read(path, gpu.caps());
    let old = arguments.compare.as_deref().map(read).transpose()?;
    let checked = report_to.is_some().then(|| checked(&gpu));
    let filter = arguments.name.as_deref().unwrap_or_default();
    let report = bench::run(&gpu, filter, config, hub(), &Terminal::new())?;
    let text = match old {
        Some(old) => report.compared(&old),
        None if arguments.json => serde_json::to_string_pretty(&report)? + "\n",
        None => report.text(),
    };
    write!(out::raw(), "{text}")?;
    if let Some((path, checked)) = report_to.zip(checked) {
        write_atomically(path, format!("{checked}\n{}", report.text()).as_bytes())?;
        if !arguments.json {
            writeln!(out::shown(), "The report is in {}", path.display())?;
        }
    }
    Ok(())
}

/// Fails if the file exists or cannot be created.
fn check_new(path: &Path) -> Result<()> {
    File::create_new(path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => exists(path, "--report"),
        _ => write_error(path)(error),
    })?;
    Ok(fs::remove_file(path).map_err(write_error(path))?)
}

/// Returns the system, and what `lapwing doctor` prints for the built-in model.
fn checked(gpu: &Gpu) -> String {
    let mut text = format!("{} {}\n", std::env::consts::OS, std::env::consts::ARCH);
    let mut add = |finding: &Finding| text += &doctor::line(finding, false);
    diagnose(|| Ok(gpu.clone()), None, None, &mut add, &Terminal::new());
    text
}
