//! The command line, and the files it names.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use clb_sim::expected::{self, Expected};
use clb_sim::recording::{self, Line};

/// Plays a recorded cluster into a simulated Kubernetes API, and keeps a simulated Azure in step with that.
#[derive(Debug, Parser)]
#[command(name = "controller")]
pub(crate) struct Arguments {
    /// A recording: JSON lines, perhaps gzipped. Default: the one called `nodes` that comes with the examples
    #[arg(long, value_name = "FILE")]
    recording: Option<PathBuf>,
    /// What the recording should end in. Default: NAME.expected.json beside NAME.jsonl, if it is there
    #[arg(long, value_name = "FILE")]
    expected: Option<PathBuf>,
    /// How many times faster than recorded; 1 is as recorded, 0 as fast as possible
    #[arg(long, value_name = "X", default_value_t = 0.0, value_parser = speed)]
    pub(crate) speed: f64,
    /// How long the simulated Azure takes to answer, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 10)]
    latency: u64,
    /// Print nothing for people, and one JSON object at the end
    #[arg(long)]
    pub(crate) json: bool,
    /// Keep the simulated Azure on this port and everything else up, also after the replay, until interrupted
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().map_err(|error| error.to_string())?;
    // Slower than this, a recording of minutes takes days, and times no longer fit.
    if speed == 0.0 || (0.001..=1e6).contains(&speed) {
        Ok(speed)
    } else {
        Err("it is 0, or 0.001 to 1000000".to_owned())
    }
}

/// What is replayed.
pub(crate) struct Input {
    /// What it is called.
    pub(crate) name: String,
    /// Its lines.
    pub(crate) lines: Vec<Line>,
    /// What it should end in, if that is known.
    pub(crate) expected: Option<Expected>,
}

/// Where the recordings are that come with the examples.
const RECORDINGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/recordings");

impl Arguments {
    /// Reads the files.
    pub(crate) fn input(&self) -> Result<Input, Box<dyn std::error::Error>> {
        let default = || Path::new(RECORDINGS).join("nodes.jsonl");
        let path = self.recording.clone().unwrap_or_else(default);
        let lines = recording::read(&path)?;
        let expected = match &self.expected {
            Some(path) => Some(expected::read(path)?),
            None => Some(sibling(&path))
                .filter(|path| path.exists())
                .map(|path| expected::read(&path))
                .transpose()?,
        };
        Ok(Input {
            name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            lines,
            expected,
        })
    }

    pub(crate) fn latency(&self) -> Duration {
        Duration::from_millis(self.latency)
    }
}

/// `NAME.expected.json` for `NAME.jsonl` and `NAME.jsonl.gz`.
fn sibling(recording: &Path) -> PathBuf {
    let name = recording.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(".gz").unwrap_or(&name);
    let stem = stem.strip_suffix(".jsonl").unwrap_or(stem);
    recording.with_file_name(format!("{stem}.expected.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expected_state_stands_beside_the_recording() {
        for recording in ["a/x.jsonl", "a/x.jsonl.gz", "a/x"] {
            assert_eq!(sibling(Path::new(recording)), Path::new("a/x.expected.json"));
        }
    }

    #[test]
    fn a_speed_is_nothing_negative_or_absurd() {
        assert_eq!(["0", "1", "0.5"].map(speed), [Ok(0.0), Ok(1.0), Ok(0.5)]);
        for bad in ["-1", "NaN", "inf", "1e-9", "fast"] {
            assert!(speed(bad).is_err(), "{bad}");
        }
    }
}
