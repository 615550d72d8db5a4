//! The nodes as the stream of changes tells them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use clb_vmss::{Listing, Machine, NodeEvent, Power, ProviderId, ScaleSetKey};

/// All nodes, by scale set.
#[derive(Debug, Default)]
pub(crate) struct Table {
    sets: BTreeMap<ScaleSetKey, Listing>,
    stale: BTreeSet<ScaleSetKey>,
}

impl Table {
    /// Takes a change in, and says it in words.
    pub(crate) fn apply(&mut self, set: &ScaleSetKey, event: NodeEvent) -> String {
        let nodes = self.sets.entry(set.clone()).or_default();
        match event {
            NodeEvent::Added { node, machine } => {
                let words = format!("+ {node} is {}", instance(&machine.id));
                nodes.insert(node, machine);
                words
            }
            NodeEvent::Replaced { node, machine } => {
                let words = format!("~ {node} is another machine: {}", instance(&machine.id));
                nodes.insert(node, machine);
                words
            }
            NodeEvent::Removed { node } => {
                nodes.remove(&node);
                format!("- {node}")
            }
            NodeEvent::IpsChanged { node, ips } => {
                let words = format!("~ {node} has {}", addresses(&ips));
                if let Some(machine) = nodes.get_mut(&node) {
                    machine.ips = ips;
                }
                words
            }
            NodeEvent::PowerChanged { node, power: now } => {
                if let Some(machine) = nodes.get_mut(&node) {
                    machine.power = now;
                }
                format!("~ {node} is {}", power(now))
            }
            NodeEvent::Stale => {
                self.stale.insert(set.clone());
                format!("! {} cannot be read; what was known stands", set.name)
            }
            NodeEvent::Fresh => {
                self.stale.remove(set);
                format!("! {} is known again", set.name)
            }
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<24} {:<20} {:<24} {:<8} ADDRESSES", "NODE", "SCALE SET", "INSTANCE", "POWER")?;
        for (set, nodes) in &self.sets {
            let stale = if self.stale.contains(set) { "  (stale)" } else { "" };
            for (node, Machine { id, vm_id: _, ips, power: now }) in nodes {
                let (set, instance, power) = (set.name.as_str(), instance(id), power(*now));
                writeln!(f, "{node:<24} {set:<20} {instance:<24} {power:<8} {}{stale}", addresses(ips))?;
            }
        }
        Ok(())
    }
}

fn instance(id: &ProviderId) -> String {
    match id {
        ProviderId::Uniform { instance_id, .. } => format!("instance {instance_id}"),
        ProviderId::VirtualMachine { name, .. } => name.to_string(),
    }
}

fn power(power: Power) -> &'static str {
    match power {
        Power::On => "on",
        Power::Off => "off",
        Power::Unknown => "unknown",
    }
}

fn addresses(ips: &BTreeSet<IpAddr>) -> String {
    ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
