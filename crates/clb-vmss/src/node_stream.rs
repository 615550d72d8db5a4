//! Nodes that come and go, as the difference between one listing of a scale set and the next.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::{ProviderId, ScaleSetKey};

/// Whether a machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// It runs.
    On,
    /// It is stopped or deallocated.
    Off,
    /// The listing did not say, which is no news: a listing without instance view never does.
    Unknown,
}

/// What a listing says about one node's machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Which machine it is.
    pub id: ProviderId,
    /// Azure's unique id of it (`properties.vmId`), which tells a new machine from an old one of the same number.
    pub vm_id: String,
    /// Its private addresses, of both families. Empty if the listing did not say, which is no news.
    pub ips: BTreeSet<IpAddr>,
    /// Whether it runs.
    pub power: Power,
}

/// The machines of one scale set by node name, in lower case.
pub type Listing = BTreeMap<String, Machine>;

/// What happened to a scale set or to a node of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeEvent {
    /// A node appeared.
    Added {
        /// Its name.
        node: String,
        /// Its machine.
        machine: Machine,
    },
    /// A node is gone, since a whole listing of its scale set lacks it.
    Removed {
        /// Its name.
        node: String,
    },
    /// Another machine goes by the node's name.
    Replaced {
        /// The node's name.
        node: String,
        /// The new machine.
        machine: Machine,
    },
    /// The same machine has other addresses.
    IpsChanged {
        /// The node's name.
        node: String,
        /// All its addresses now.
        ips: BTreeSet<IpAddr>,
    },
    /// The same machine was started or stopped.
    PowerChanged {
        /// The node's name.
        node: String,
        /// What is known now.
        power: Power,
    },
    /// The scale set could not be listed; what was last known of it stands.
    Stale,
    /// A scale set that was stale was listed again, or is known to be gone.
    Fresh,
}

/// Tells what changed from one listing to the next. Pure: listings in, events out.
///
/// Only a complete listing removes a node, or word that the scale set itself is gone. A listing of which any page
/// failed must be handed over as [`NodeDiffer::handle_failure`].
#[derive(Clone, Debug, Default)]
pub struct NodeDiffer {
    sets: BTreeMap<ScaleSetKey, Known>,
}

#[derive(Clone, Debug, Default)]
struct Known {
    /// The last complete listing, if there ever was one.
    nodes: Option<Listing>,
    stale: bool,
}

impl NodeDiffer {
    /// A differ that knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// `set` was listed completely. Removals come first, so that an address that moved is let go before it is taken.
    pub fn handle_listing(&mut self, set: &ScaleSetKey, listing: Listing) -> Vec<NodeEvent> {
        let known = self.sets.entry(set.clone()).or_default();
        let mut events = Vec::new();
        if std::mem::take(&mut known.stale) {
            events.push(NodeEvent::Fresh);
        }
        let mut before = known.nodes.take().unwrap_or_default();
        let mut nodes = Listing::new();
        let gone = before.keys().filter(|node| !listing.contains_key(*node));
        events.extend(gone.map(|node| NodeEvent::Removed { node: node.clone() }));
        for (node, mut machine) in listing {
            match before.remove(&node) {
                None => events.push(NodeEvent::Added { node: node.clone(), machine: machine.clone() }),
                Some(old) if (&old.id, &old.vm_id) != (&machine.id, &machine.vm_id) => {
                    events.push(NodeEvent::Replaced { node: node.clone(), machine: machine.clone() });
                }
                Some(old) => {
                    if machine.power == Power::Unknown {
                        machine.power = old.power;
                    }
                    if machine.ips.is_empty() {
                        machine.ips = old.ips.clone();
                    }
                    if old.ips != machine.ips {
                        events.push(NodeEvent::IpsChanged { node: node.clone(), ips: machine.ips.clone() });
                    }
                    if old.power != machine.power {
                        events.push(NodeEvent::PowerChanged { node: node.clone(), power: machine.power });
                    }
                }
            }
            nodes.insert(node, machine);
        }
        known.nodes = Some(nodes);
        events
    }

    /// `set` could not be listed, or not completely. Said once until it is listed again.
    pub fn handle_failure(&mut self, set: &ScaleSetKey) -> Vec<NodeEvent> {
        let known = self.sets.entry(set.clone()).or_default();
        if std::mem::replace(&mut known.stale, true) { Vec::new() } else { vec![NodeEvent::Stale] }
    }

    /// `set` no longer exists, and so none of its nodes does.
    pub fn handle_gone(&mut self, set: &ScaleSetKey) -> Vec<NodeEvent> {
        let known = self.sets.remove(set).unwrap_or_default();
        let nodes = known.nodes.unwrap_or_default();
        let fresh = known.stale.then_some(NodeEvent::Fresh);
        fresh.into_iter().chain(nodes.into_keys().map(|node| NodeEvent::Removed { node })).collect()
    }

    /// The sets that are known of, with the last complete listing of each that was ever listed.
    pub fn sets(&self) -> impl Iterator<Item = (&ScaleSetKey, Option<&Listing>)> {
        self.sets.iter().map(|(set, known)| (set, known.nodes.as_ref()))
    }

    /// The last complete listing of `set`, or `None` if it was never listed: then nothing is known of its nodes.
    #[must_use]
    pub fn nodes(&self, set: &ScaleSetKey) -> Option<&Listing> {
        self.sets.get(set)?.nodes.as_ref()
    }
}
