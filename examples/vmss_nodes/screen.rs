//! What is seen.

use std::io::{self, IsTerminal, Write};
use std::net::IpAddr;
use std::sync::Arc;

use clb_vmss::{MachineState, NodeEvent, NodePoller, Power, ProviderId, ScaleSetKey, VmssCache};

use crate::Error;

/// Writes what a poller tells and what its cache holds.
pub(crate) struct Screen {
    poller: NodePoller,
    cache: Arc<VmssCache>,
    is_terminal: bool,
    /// What was said last. It stays above the table.
    said: String,
}

impl Screen {
    pub(crate) fn new(poller: NodePoller, cache: Arc<VmssCache>) -> Self {
        Self { poller, cache, is_terminal: io::stdout().is_terminal(), said: String::new() }
    }

    pub(crate) fn cache(&self) -> &VmssCache {
        &self.cache
    }

    /// Says what the nodes do not.
    pub(crate) fn say(&mut self, words: &str) -> Result<(), Error> {
        words.clone_into(&mut self.said);
        if self.is_terminal {
            self.draw(&[])?;
        } else {
            writeln!(io::stdout(), "{words}")?;
        }
        Ok(())
    }

    /// Shows the next round.
    pub(crate) async fn round(&mut self) -> Result<(), Error> {
        let told = self.poll().await;
        if self.is_terminal {
            return Ok(self.draw(&told)?);
        }
        for line in told {
            writeln!(io::stdout(), "  {line}")?;
        }
        Ok(())
    }

    /// Shows the nodes once.
    pub(crate) async fn once(&mut self) -> Result<(), Error> {
        self.poll().await;
        Ok(write!(io::stdout(), "{}", self.table())?)
    }

    /// Shows what there is in the end, which a terminal does already.
    pub(crate) async fn end(&mut self) -> Result<(), Error> {
        if self.is_terminal { Ok(()) } else { self.once().await }
    }

    /// What the next round tells, in words, set by set.
    async fn poll(&mut self) -> Vec<String> {
        let mut told = self.poller.next_round().await;
        told.sort_by(|(one, _), (other, _)| one.cmp(other));
        told.iter().map(|(set, event)| words(set, event)).collect()
    }

    fn draw(&self, told: &[String]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        write!(out, "\x1b[2J\x1b[H{}\n\n{}\n", self.said, self.table())?;
        for line in told {
            writeln!(out, "  {line}")?;
        }
        out.flush()
    }

    /// Everything that was last read, machines that are no nodes yet, or soon no more, included.
    fn table(&self) -> String {
        let titles = ["NODE", "SCALE SET", "INSTANCE", "STATE", "POWER", "ADDRESSES"];
        let mut rows = vec![titles.map(str::to_owned)];
        for set in self.cache.sets() {
            let Some(cached) = self.cache.last_snapshot(&set) else { continue };
            let stale = if cached.stale.is_some() { "  (stale)" } else { "" };
            rows.extend(cached.value.iter().flat_map(|snapshot| snapshot.records()).map(|record| {
                [
                    record.node.clone().unwrap_or_else(|| "–".to_owned()),
                    set.name.to_string(),
                    instance(&record.id),
                    state(record.state).to_owned(),
                    power(record.power).to_owned(),
                    join(&record.ips) + stale,
                ]
            }));
        }
        let widths: [usize; 6] =
            std::array::from_fn(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0));
        let line = |row: &[String; 6]| {
            let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
        };
        rows.iter().map(line).collect()
    }
}

/// A change as a line of its own.
fn words(set: &ScaleSetKey, event: &NodeEvent) -> String {
    match event {
        NodeEvent::Added { node, machine } => {
            let (instance, power) = (instance(&machine.id), power(machine.power));
            format!("+ {node}: {instance} of {}, {power}, {}", set.name, join(&machine.ips))
        }
        NodeEvent::Replaced { node, machine } => {
            format!("~ {node}: {} of {} now, {}", instance(&machine.id), set.name, join(&machine.ips))
        }
        NodeEvent::Removed { node } => format!("- {node}"),
        NodeEvent::IpsChanged { node, ips } => format!("~ {node}: {}", join(ips)),
        NodeEvent::PowerChanged { node, power: now } => format!("~ {node}: {}", power(*now)),
        NodeEvent::Stale => format!("! {} cannot be read; what was known stands", set.name),
        NodeEvent::Fresh => format!("! {} can be read again", set.name),
    }
}

fn instance(id: &ProviderId) -> String {
    match id {
        ProviderId::Uniform { instance_id, .. } => format!("instance {instance_id}"),
        ProviderId::VirtualMachine { name, .. } => name.to_string(),
    }
}

fn state(state: MachineState) -> &'static str {
    match state {
        MachineState::BeingMade => "being made",
        MachineState::Ready => "ready",
        MachineState::Updating => "updating",
        MachineState::Failed => "failed",
        MachineState::Deleting => "deleting",
    }
}

fn power(power: Power) -> &'static str {
    match power {
        Power::On => "on",
        Power::Off => "off",
        Power::Unknown => "unknown",
    }
}

fn join<'a>(ips: impl IntoIterator<Item = &'a IpAddr>) -> String {
    ips.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
