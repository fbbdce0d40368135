//! `lapwing bench`: the speed of this device.

use std::io::Write;

use anyhow::Result;
use lapwing_lab::bench::{self, BenchReport};
use lapwing_lab::doctor::{Finding, diagnose};
use lapwing_tensor::Gpu;
use lapwing_train::Config;
use lapwing_train::record::NewFile;

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
    let report_to = report_to.map(|path| NewFile::at(path, "--report"));
    let report_to = report_to.transpose()?;
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
    if let Some((file, checked)) = report_to.zip(checked) {
        file.write(&format!("{checked}\n{}", report.text()))?;
        if !arguments.json {
            writeln!(out::shown(), "The report is in {}", file.path().display())?;
        }
    }
    Ok(())
}

/// Returns the system, and what `lapwing doctor` prints for the built-in model.
fn checked(gpu: &Gpu) -> String {
    let mut text = format!("{} {}\n", std::env::consts::OS, std::env::consts::ARCH);
    let mut add = |finding: &Finding| text += &doctor::line(finding, false);
    diagnose(|| Ok(gpu.clone()), None, None, &mut add, &Terminal::new());
    text
}
