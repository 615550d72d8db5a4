//! The simulator from outside: Azure's rules one by one, the same over HTTP, and the recordings.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::needless_pass_by_value, reason = "requests are built where they are asked")]

mod compute;
mod compute_flexible;
mod compute_interfaces;
mod compute_scale_sets;
mod compute_time;
mod control;
mod determinism;
mod faults;
mod http;
mod kube;
mod kube_apply;
mod kube_client;
mod kube_controllers;
mod kube_faults;
mod kube_http;
mod kube_kubectl;
mod kube_pods;
mod kube_properties;
mod kube_recorded;
mod kube_reflector;
mod kube_replay;
mod kube_rollout;
mod load_balancers;
mod locations;
mod nat_gateways;
mod network_properties;
mod operations;
mod program;
mod properties;
mod public_ips;
mod python;
mod recorded;
mod recordings;
mod requests;
mod service_gateways;
mod services;
mod support;
mod view;
