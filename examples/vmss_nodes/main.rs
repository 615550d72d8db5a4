//! A live table of nodes: which machine each is, whether it runs, and which addresses it has.
//!
//! `cargo run --example vmss_nodes` plays a short story in a simulated Azure of its own, and ends. With `--subscription` and
//! `--resource-group` it watches the real one, as `--identity` says, until it is interrupted, and changes nothing there.
//!
//! On a terminal the table is drawn again and again. Elsewhere there is a line for each change.

mod arguments;
mod screen;
mod story;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use clb_arm::{ArmClient, Cloud, Endpoint, HttpTransport, Limiter, RetryPolicy};
use clb_vmss::{
    CacheConfig, CallContext, Freshness, NodePoller, ResourceGroupKey, VmssApi, VmssCache, VmssClient,
};

use arguments::{Arguments, Target};
use screen::Screen;

type Error = Box<dyn std::error::Error>;

// One thread, since the clock of several cannot be stopped, as `--no-wait` does.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let log = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "off".into());
    tracing_subscriber::fmt().with_env_filter(log).with_writer(io::stderr).init();
    let arguments = Arguments::parse();
    let result = match arguments.target() {
        Some(target) => watch(&arguments, &target).await,
        None => play(&arguments).await,
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The nodes of a resource group, polled and shown.
fn screen(vmss: Arc<dyn VmssApi>, group: ResourceGroupKey, arguments: &Arguments) -> Screen {
    let cache = Arc::new(VmssCache::new(vmss, [group], CacheConfig::default()));
    Screen::new(NodePoller::new(Arc::clone(&cache), arguments.interval()), cache)
}

/// Shows a real resource group.
async fn watch(arguments: &Arguments, target: &Target<'_>) -> Result<(), Error> {
    let credential = target.identity.clone().in_cloud(&Cloud::Public);
    let arm = ArmClient::builder(Endpoint::new(&Cloud::Public)?, credential, HttpTransport::new()?)
        .retry_policy(RetryPolicy::default())
        .limiter(Limiter::new())
        .build();
    let group =
        ResourceGroupKey { subscription: target.subscription.parse()?, name: target.resource_group.parse()? };
    let mut screen = screen(Arc::new(VmssClient::new(arm)), group.clone(), arguments);
    // The poller goes on whatever fails, as who is not signed in should not.
    let sets = screen.cache().scale_sets(&CallContext::random(), &group, Freshness::Now).await?;
    screen.say(&format!("{} scale sets in {}", sets.value.len(), target.resource_group))?;
    if arguments.once {
        return screen.once().await;
    }
    loop {
        tokio::select! {
            shown = screen.round() => shown?,
            interrupted = tokio::signal::ctrl_c() => return Ok(interrupted?),
        }
    }
}

/// Shows a simulated Azure, in which something happens.
async fn play(arguments: &Arguments) -> Result<(), Error> {
    if arguments.no_wait {
        tokio::time::pause();
    }
    let (story, vmss) = story::begin()?;
    let mut screen = screen(vmss, story.group(), arguments);
    if arguments.once {
        story.furnish().await?;
        return screen.once().await;
    }
    for step in story::STEPS {
        screen.say(step.says())?;
        let rounds = async {
            for _ in 0..story::ROUNDS {
                screen.round().await?;
            }
            Ok(())
        };
        tokio::try_join!(story.act(step), rounds)?;
    }
    screen.end().await
}
