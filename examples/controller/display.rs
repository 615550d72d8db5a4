//! What a person sees: a line for each phase and each call, and a progress bar while the recording is replayed.

use std::time::Instant;

use clb_difftracker::{Notice, ObjectKey, ServiceId};
use clb_examples::observe::Call;
use clb_examples::run::Event;
use clb_sim::traffic::CallCounts;
use indicatif::{ProgressBar, ProgressStyle};

use crate::Summary;

/// Writes for people, or nothing at all.
pub(crate) struct Display {
    /// `None` when nothing is written for people.
    bar: Option<ProgressBar>,
    started: Instant,
}

impl Display {
    pub(crate) fn new(silent: bool, lines: u64) -> Self {
        let bar = || {
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} lines replayed, {elapsed}");
            ProgressBar::new(lines).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        };
        Self { bar: (!silent).then(bar), started: Instant::now() }
    }

    /// A line above the bar.
    pub(crate) fn say(&self, line: &str) {
        if let Some(bar) = &self.bar {
            bar.suspend(|| println!("{line}"));
        }
    }

    pub(crate) fn show(&self, event: &Event) {
        match event {
            Event::Notice(notice) => self.show_notice(notice),
            Event::Call(call) => self.show_call(call),
            Event::Replayed { .. } => {
                if let Some(bar) = &self.bar {
                    bar.inc(1);
                }
            }
        }
    }

    fn show_notice(&self, notice: &Notice) {
        match notice {
            Notice::Phase { service, key, from, to } => {
                let phase =
                    |phase: &Option<_>| phase.map_or_else(|| "–".to_owned(), |phase| format!("{phase}"));
                self.row(
                    "phase",
                    &format!("{:<38} {} → {}", named(key.as_ref(), service), phase(from), phase(to)),
                );
            }
            Notice::Rejected { key, rejection, .. } => {
                self.row("rejected", &format!("{key}: {}: {}", rejection.reason, rejection.message));
            }
            Notice::EgressRefused { egress, .. } => {
                self.row("refused", &format!("egress {egress}: it is the UID of a Service"));
            }
            Notice::DeletionsHeld { kind, missing, of } => {
                self.row("held", &format!("{missing} of {of} would go with a list of {kind}s: list again"));
            }
            Notice::PodFailed { operation, pod, message, .. } => {
                self.row("failed", &format!("{operation}: pod {pod}: {message}"));
            }
            Notice::Failed { operation, message, .. } => {
                self.row("failed", &format!("{operation}: {message}"));
            }
            Notice::Quarantined { address, message, .. } => {
                self.row("left out", &format!("{address}: {message}"));
            }
        }
    }

    fn show_call(&self, Call { method, resource, entries, error, duration }: &Call) {
        let result = error.as_deref().unwrap_or("ok");
        self.row(method, &format!("{resource:<56} {entries:<24} {result} {duration:>9.1?}"));
    }

    fn row(&self, what: &str, rest: &str) {
        self.say(&format!("{:>8.3} s  {what:<8} {rest}", self.started.elapsed().as_secs_f64()));
    }

    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    pub(crate) fn summarise(&self, summary: &Summary, is_compared: bool) {
        let Summary { in_sync, services, locations, addresses, changes, nrp_calls, mismatches } = summary;
        let CallCounts { update_services, update_address_locations, put, delete, get } = nrp_calls;
        let verdict = match (in_sync, is_compared) {
            (true, true) => "In sync: the gateway holds exactly what the recording ends in",
            (true, false) => "In sync by the controller's word; there is no expected state to compare with",
            (false, _) => "NOT in sync",
        };
        println!("\n{verdict}.");
        println!("  {services} services, {addresses} addresses at {locations} locations");
        println!("  {changes} changes in {:.1} s", self.started.elapsed().as_secs_f64());
        println!(
            "  {update_services} updateServices, {update_address_locations} updateAddressLocations, \
             {put} PUT, {delete} DELETE, {get} GET"
        );
        for mismatch in mismatches {
            println!("  MISMATCH: {mismatch}");
        }
    }

    pub(crate) fn say_where_to_look(&self, endpoint: &str, kube: &str) {
        let gateway = "subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/mc_rg/providers/Microsoft.Network/serviceGateways/servicegateway";
        self.say("\nBoth simulators and the controller stay up until Ctrl-C. Look with:");
        self.say(&format!("  kubectl --server {kube} get services,endpointslices,events -A"));
        for list in ["services", "addressLocations"] {
            self.say(&format!("  curl '{endpoint}/{gateway}/{list}?api-version=2025-05-01'"));
        }
    }
}

fn named(key: Option<&ObjectKey>, service: &ServiceId) -> String {
    key.map_or_else(|| service.to_string(), ToString::to_string)
}
