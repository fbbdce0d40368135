//! `lapwing bench`: the speed of this device.

use std::io::Write;

use anyhow::Result;
use lapwing_lab::bench::{self, BenchReport};
use lapwing_lab::doctor::{Finding, diagnose};
use lapwing_tensor::Gpu;
use lapwing_train::Config;
use lapwing_train::base::source::ModelSource;
use lapwing_train::record::write_error;

use crate::args::{self, BenchArgs, DeviceArgs};
use crate::commands::{doctor, eval};
use crate::hub::hub;
use crate::out;
use crate::progress::Terminal;

pub fn bench(device: DeviceArgs, arguments: &BenchArgs) -> Result<()> {
    let config = arguments.model.as_deref().map(|text| {
        let (key, name) = match args::model(text)? {
            ModelSource::Repository(_) => ("repo", text.to_owned()),
            directory => ("dir", directory.name()),
        };
        let model = format!("model.{key}={}", toml::Value::from(name));
        anyhow::Ok(Config::load(&arguments.preset, &[model])?)
    });
    let config = config.transpose()?;
    let file = match &arguments.report {
        Some(path) => Some((path, eval::create(path, "--report")?)),
        None => None,
    };
    let gpu = device.open()?;
    let read = |path| BenchReport::read(path, gpu.caps());
    // Before measuring, which takes a while.
    let old = arguments.compare.as_deref().map(read).transpose()?;
    let checked = file.is_some().then(|| checked(&gpu));
    let filter = arguments.name.as_deref().unwrap_or_default();
    let report = bench::run(&gpu, filter, config, hub(), &Terminal::new())?;
    let text = match old {
        Some(old) => report.compared(&old),
        None if arguments.json => serde_json::to_string_pretty(&report)? + "\n",
        None => report.text(),
    };
    write!(out::raw(), "{text}")?;
    if let Some(((path, mut file), checked)) = file.zip(checked) {
        let written = write!(file, "{checked}\n{}", report.text()).and_then(|()| file.flush());
        written.map_err(write_error(path))?;
        if !arguments.json {
            writeln!(out::shown(), "The report is in {}", path.display())?;
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
