//! `lapwing doctor`: whether this machine can train, one line per check.

use std::io::{self, IsTerminal, Write};

use anyhow::{Result, bail};
use console::style;
use lapwing_lab::doctor::{Finding, FindingStatus, diagnose};

use crate::args::{self, DeviceArgs, DoctorArgs};
use crate::hub::hub;
use crate::out;
use crate::progress::Terminal;

pub fn doctor(device: DeviceArgs, arguments: &DoctorArgs) -> Result<()> {
    let model = arguments.model.as_deref().map(args::model_setting);
    let model = model.transpose()?;
    let mut out = io::stdout();
    let colour = out.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let mut written = Ok(());
    let terminal = Terminal::new();
    let mut print = |finding: &Finding| {
        if written.is_ok() && !arguments.json {
            let text = line(finding, colour);
            written = terminal.hidden(|| write!(io::stdout(), "{text}"));
        }
    };
    let report = diagnose(|| device.open(), model, hub(), &mut print, &terminal);
    drop(terminal);
    written?;
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    }
    if !report.is_good() {
        bail!("this machine cannot train as it is");
    }
    if !arguments.json {
        writeln!(out, "This machine can train.")?;
    }
    Ok(())
}

pub(super) fn line(finding: &Finding, colour: bool) -> String {
    let word = match finding.outcome {
        FindingStatus::Good => style("ok  ").green(),
        FindingStatus::Warning => style("note").yellow(),
        FindingStatus::Bad => style("BAD ").red(),
    };
    let word = word.force_styling(colour);
    let mut text = format!("{word} {:14} {}\n", finding.name, out::line(&finding.text));
    if let Some(fix) = &finding.fix {
        text += &format!("{:20}-> {}\n", "", out::line(fix));
    }
    text
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use serde_json::Value;

    use super::*;

    #[test]
    fn findings_are_printed() {
        let mut finding = Finding {
            name: "memory",
            outcome: FindingStatus::Good,
            text: "to train the built-in model takes up to 0.21 GiB of the device's 24.0"
                .to_owned(),
            fix: None,
            figures: Value::Null,
            seconds: 0.1,
        };
        let mut text = line(&finding, false);
        finding.name = "kernels";
        finding.outcome = FindingStatus::Bad;
        finding.text = "the driver computes wrong numbers".to_owned();
        finding.fix = Some("update the driver");
        text += &line(&finding, false);
        finding.outcome = FindingStatus::Warning;
        text += &line(&finding, false);
        assert_snapshot!(text, @"
        ok   memory         to train the built-in model takes up to 0.21 GiB of the device's 24.0
        BAD  kernels        the driver computes wrong numbers
                            -> update the driver
        note kernels        the driver computes wrong numbers
                            -> update the driver
        ");
        assert!(line(&finding, true).starts_with("\u{1b}[33mnote\u{1b}[0m kernels"));
    }
}
