//! What was asked of both simulators, as it happens.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use super::milliseconds;
use crate::Simulation;
use crate::fault::{Api, How};
use crate::kube::{KubeCall, KubeSimulation};
use crate::traffic::CallRecord;

/// How many calls are kept.
const KEPT: usize = 1_000;
/// How long an answer is waited for at most: a hundred years, which can be added to any time.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// One call.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HeardCall {
    /// Counted from 1.
    pub(super) number: u64,
    pub(super) at_milliseconds: u64,
    pub(super) api: Api,
    pub(super) verb: String,
    pub(super) path: String,
    /// 0 if there was no answer.
    pub(super) status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fault: Option<How>,
}

#[derive(Debug)]
struct Log {
    azure: broadcast::Receiver<CallRecord>,
    kube: broadcast::Receiver<KubeCall>,
    calls: VecDeque<HeardCall>,
    last_busy: Option<HeardCall>,
    busy_until: Instant,
    missed: u64,
}

/// The last calls.
#[derive(Debug)]
pub(super) struct Calls {
    log: Mutex<Log>,
    /// The number of the last one.
    number: watch::Sender<u64>,
}

impl Calls {
    pub(super) fn of(azure: &Simulation, kube: &KubeSimulation) -> Self {
        let log = Log {
            azure: azure.subscribe(),
            kube: kube.subscribe(),
            calls: VecDeque::new(),
            last_busy: None,
            busy_until: Instant::now(),
            missed: 0,
        };
        Self { log: Mutex::new(log), number: watch::Sender::new(0) }
    }

    /// Takes down each call as it happens, for as long as this is polled.
    pub(super) async fn listen(&self, azure: &Simulation, kube: &KubeSimulation) {
        let (mut azure, mut kube) = (azure.subscribe(), kube.subscribe());
        loop {
            let is_closed = tokio::select! {
                heard = azure.recv() => heard.err() == Some(RecvError::Closed),
                heard = kube.recv() => heard.err() == Some(RecvError::Closed),
            };
            if is_closed {
                return;
            }
            drop(self.lock());
        }
    }

    /// The log, with all that happened until now.
    fn lock(&self) -> MutexGuard<'_, Log> {
        // Nothing panics while holding it.
        let mut guard = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let log = &mut *guard;
        let mut heard: Vec<(HeardCall, Duration)> = Vec::new();
        while let Some(call) = next(&mut log.azure, &mut log.missed) {
            heard.push((of_azure(&call), call.duration));
        }
        while let Some(call) = next(&mut log.kube, &mut log.missed) {
            let delay = if let Some(How::Delay(millis)) = call.fault { millis } else { 0 };
            heard.push((of_kubernetes(call), Duration::from_millis(delay)));
        }
        heard.sort_by_key(|(call, _)| call.at_milliseconds);
        for (call, takes) in heard {
            self.add(log, call, takes);
        }
        guard
    }

    fn add(&self, log: &mut Log, mut call: HeardCall, takes: Duration) {
        let number = *self.number.borrow() + 1;
        call.number = number;
        if !is_idle(&call) {
            log.busy_until = log.busy_until.max(Instant::now() + takes.min(LONGEST));
            log.last_busy = Some(call.clone());
        }
        if log.calls.len() == KEPT {
            log.calls.pop_front();
        }
        log.calls.push_back(call);
        self.number.send_replace(number);
    }

    /// The number of the last call.
    pub(super) fn number(&self) -> u64 {
        drop(self.lock());
        *self.number.borrow()
    }

    /// Waits for a call after the one of this number, and returns the number of the last one.
    pub(super) async fn after(&self, number: u64) -> u64 {
        let mut numbers = self.number.subscribe();
        // The sender lives as long as this does.
        numbers.wait_for(|now| *now > number).await.map_or(number, |now| *now)
    }

    /// Those that are kept after the one of this number, in order.
    pub(super) fn since(&self, number: u64) -> Vec<HeardCall> {
        self.lock().calls.iter().filter(|call| call.number > number).cloned().collect()
    }

    /// How many came too fast to be taken down.
    pub(super) fn missed(&self) -> u64 {
        self.lock().missed
    }

    /// The last call that keeps things from being settled.
    pub(super) fn last_busy(&self) -> Option<HeardCall> {
        self.lock().last_busy.clone()
    }

    /// Waits until nothing was asked, and nothing was being answered, for so long.
    pub(super) async fn quiet_for(&self, quiet: Duration) {
        loop {
            let busy_until = self.lock().busy_until;
            match busy_until.checked_add(quiet) {
                Some(due) if due <= Instant::now() => return,
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        }
    }
}

/// The next call that was heard, if there is one. Those that came too fast are counted.
fn next<T: Clone>(receiver: &mut broadcast::Receiver<T>, missed: &mut u64) -> Option<T> {
    loop {
        match receiver.try_recv() {
            Ok(call) => return Some(call),
            Err(TryRecvError::Lagged(count)) => *missed += count,
            Err(TryRecvError::Empty | TryRecvError::Closed) => return None,
        }
    }
}

/// Whether a call is one that goes on for ever where nothing happens: who leads keeps saying so.
fn is_idle(call: &HeardCall) -> bool {
    call.api == Api::Kubernetes && call.path.starts_with("/apis/coordination.k8s.io/")
}

fn of_azure(call: &CallRecord) -> HeardCall {
    HeardCall {
        number: 0,
        at_milliseconds: milliseconds(call.at),
        api: Api::Azure,
        verb: call.method.as_str().to_owned(),
        path: call.path.clone(),
        status: call.status,
        code: call.code.clone(),
        fault: call.fault.clone(),
    }
}

fn of_kubernetes(KubeCall { at, call, status, fault }: KubeCall) -> HeardCall {
    HeardCall {
        number: 0,
        at_milliseconds: milliseconds(at),
        api: Api::Kubernetes,
        verb: call.verb,
        path: call.path,
        status,
        code: None,
        fault,
    }
}
