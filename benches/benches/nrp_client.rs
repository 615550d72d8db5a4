//! What the NRP client costs: writing and reading the addresses of a large cluster, and many requests at once.
//!
//! What would be wrong: a body that takes an allocation for each address, since it is to be written straight from the models; a
//! list that takes more of them than what it holds is made of; a client that keeps 64 callers waiting for each other. Times
//! are printed, for they are the machine's; allocations are the same on every machine, and are checked: the exit code is 1
//! when there are too many. Every measurement also checks what arrived.
//!
//! `cargo bench -p clb-benches --bench nrp_client`

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use clb_arm::http::{Request, Response};
use clb_arm::{Anonymous, ArmClient, Cloud, Endpoint, HttpTransport, Transport, TransportError};
use clb_benches::measure::{shortest, time};
use clb_nrp::models::{
    Address, AddressLocationUpdate, IpVersion, PublicIp, ServiceNames, UpdateAction, UpdateAddressLocations,
};
use clb_nrp::{CallContext, NrpApi, NrpClient, NrpConfig};
use clb_sim::{Simulator, SimulatorConfig};
use dhat::HeapStats;
use tokio::runtime::{Builder, Runtime};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Pods on one node, a usual setting.
const NODE: usize = 100;

/// Different lists of services, each of two: as many as there are Services with a hundred endpoints each.
const LISTS: usize = 1_000;

const ADDRESSES: usize = 100_000;

/// Measurements of one kind.
const ROUNDS: usize = 10;

/// Ten times as many addresses in a body may take so many allocations more: the doublings of its buffer, and nothing for each.
const MAX_GROWTH_OF_WRITING: u64 = 8;

/// An address that is read may take so many: its text, its list of services with its two names, and what shares that; seven, and
/// a fraction for the doublings of buffers.
const MAX_FOR_READING: u64 = 8;

/// Callers at once.
const CALLERS: usize = 64;

/// Requests of each caller in one measurement.
const REQUESTS: usize = 50;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool> {
    let single = Builder::new_current_thread().enable_all().build()?;
    println!(
        "{ADDRESSES} addresses on {} nodes, each with one of {LISTS} lists of two services",
        ADDRESSES / NODE
    );
    let (written, read) = (writing(&single)?, reading(&single)?);
    println!("  written {written}, read {read}");
    let per_second = requests()?;
    println!("{CALLERS} callers at once, over loopback to the simulator: {per_second:.0} requests/s");

    // From here on allocations are counted, which makes everything slow.
    let _profiler = dhat::Profiler::builder().testing().build();
    let to_write = |addresses| {
        let (client, update) = (Canned::default().client()?, update(addresses));
        count(|| single.block_on(client.update_address_locations(&CallContext::random(), &update)))
    };
    let (few, many) = (to_write(ADDRESSES / 10)?, to_write(ADDRESSES)?);
    let client = Canned::answering(list(ADDRESSES)?).client()?;
    let reading = count(|| single.block_on(client.get_address_locations(&CallContext::random())))?;
    let (growth, each) = (many.saturating_sub(few), reading.div_ceil(ADDRESSES as u64));
    println!("allocations: {few} to write {} addresses, {many} for {ADDRESSES}", ADDRESSES / 10);
    println!("             {reading} to read {ADDRESSES}, at most {each} each");
    let is_fine = growth <= MAX_GROWTH_OF_WRITING && each <= MAX_FOR_READING;
    if !is_fine {
        println!(
            "FAILED: more than {MAX_GROWTH_OF_WRITING} allocations more to write ten times as many addresses, or more \
             than {MAX_FOR_READING} to read one"
        );
    }
    Ok(is_fine)
}

/// How many allocations `work` makes.
fn count<T>(work: impl FnOnce() -> clb_nrp::Result<T>) -> Result<u64> {
    let before = HeapStats::get().total_blocks;
    work()?;
    Ok(HeapStats::get().total_blocks - before)
}

/// From the models to the transport.
fn writing(runtime: &Runtime) -> Result<String> {
    let transport = Canned::default();
    let client = transport.client()?;
    let mut results = Vec::new();
    let mut write = || {
        let (call, update) = (CallContext::random(), update(ADDRESSES));
        time(|| results.push(runtime.block_on(client.update_address_locations(&call, &update))))
    };
    let [fastest] = shortest(ROUNDS, [&mut write]);
    results.into_iter().collect::<clb_nrp::Result<()>>()?;
    let body = transport.last_body();
    let expected = serde_json::to_value(update(ADDRESSES))?;
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&body)?, expected);
    Ok(speed(body.len(), fastest))
}

/// From the answer to the models.
fn reading(runtime: &Runtime) -> Result<String> {
    let list = list(ADDRESSES)?;
    let bytes = list.len();
    let client = Canned::answering(list).client()?;
    let mut last = None;
    let mut read = || {
        let call = CallContext::random();
        time(|| last = Some(runtime.block_on(client.get_address_locations(&call))))
    };
    let [fastest] = shortest(ROUNDS, [&mut read]);
    let read = last.ok_or("nothing was read")??;
    let addresses: Vec<_> = read.into_iter().map(|held| (held.location, held.addresses)).collect();
    let sent =
        update(ADDRESSES).address_locations.into_iter().map(|sent| (sent.address_location, sent.addresses));
    assert!(sent.eq(addresses), "what is read is what is there");
    Ok(speed(bytes, fastest))
}

fn speed(bytes: usize, elapsed: Duration) -> String {
    let megabytes = bytes as f64 / 1e6;
    format!("{megabytes:.1} MB in {elapsed:.2?} ({:.0} MB/s)", megabytes / elapsed.as_secs_f64())
}

/// Requests in a second, over real connections.
fn requests() -> Result<f64> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let config = SimulatorConfig { latency: Duration::ZERO, ..SimulatorConfig::default() };
        let simulator = Simulator::start(config).await?;
        let cloud =
            Cloud::Custom { endpoint: simulator.endpoint(), audience: "https://simulator".to_owned() };
        let client = client(&cloud, HttpTransport::new()?)?;
        let wanted = PublicIp::for_service("eastus2", IpVersion::V4, Default::default());
        let made = client.put_public_ip(&CallContext::random(), "a", &wanted).await?;
        let mut fastest = Duration::MAX;
        for _ in 0..ROUNDS {
            let started = std::time::Instant::now();
            let callers: Vec<_> =
                (0..CALLERS).map(|_| tokio::spawn(ask(client.clone(), made.clone()))).collect();
            for caller in callers {
                caller.await??;
            }
            fastest = fastest.min(started.elapsed());
        }
        simulator.shutdown().await;
        Ok((CALLERS * REQUESTS) as f64 / fastest.as_secs_f64())
    })
}

/// One caller: each request after the answer to the last one.
async fn ask(client: NrpClient, expected: PublicIp) -> clb_nrp::Result<()> {
    for _ in 0..REQUESTS {
        let found = client.get_public_ip(&CallContext::random(), "a").await?;
        assert_eq!(found.as_ref(), Some(&expected));
    }
    Ok(())
}

fn client(cloud: &Cloud, transport: impl Transport) -> Result<NrpClient> {
    let arm = ArmClient::builder(Endpoint::new(cloud)?, Anonymous, transport).build();
    let network = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network/virtualNetworks/vnet";
    Ok(NrpClient::new(arm, NrpConfig::new("s", "rg", "eastus2", network.parse()?)?))
}

/// Answers everything with the same, at once, and keeps the last body.
#[derive(Clone, Debug, Default)]
struct Canned {
    answer: Arc<Vec<u8>>,
    last_body: Arc<Mutex<Vec<u8>>>,
}

impl Canned {
    fn answering(answer: Vec<u8>) -> Self {
        Self { answer: Arc::new(answer), ..Self::default() }
    }

    fn client(&self) -> Result<NrpClient> {
        client(&Cloud::Public, self.clone())
    }

    fn last_body(&self) -> Vec<u8> {
        self.last_body.lock().map(|body| body.clone()).unwrap_or_default()
    }
}

#[async_trait]
impl Transport for Canned {
    async fn send(
        &self,
        request: Request<Vec<u8>>,
    ) -> std::result::Result<Response<Vec<u8>>, TransportError> {
        if let Ok(mut last_body) = self.last_body.lock() {
            *last_body = request.into_body();
        }
        Ok(Response::new(self.answer.to_vec()))
    }
}

/// An update of so many addresses, with lists of services that are shared, as the tracker has them.
fn update(addresses: usize) -> UpdateAddressLocations {
    let uid = |number: usize| format!("00000000-0000-0000-0000-{number:012}");
    let lists: Vec<ServiceNames> =
        (0..LISTS).map(|number| [uid(2 * number), uid(2 * number + 1)].into_iter().collect()).collect();
    let ip = |first: u8, number: usize| {
        let [_, a, b, c] = u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes();
        [first, a, b, c].into()
    };
    let address = |pod: usize| Address { address: ip(10, pod), services: lists[pod % LISTS].clone() };
    let location = |node: usize| AddressLocationUpdate {
        address_location: ip(172, node),
        address_update_action: UpdateAction::PartialUpdate,
        addresses: (node * NODE..(node + 1) * NODE).map(address).collect(),
    };
    UpdateAddressLocations {
        action: UpdateAction::PartialUpdate,
        address_locations: (0..addresses / NODE).map(location).collect(),
    }
}

/// A list of so many addresses, as the service answers it.
fn list(addresses: usize) -> Result<Vec<u8>> {
    let locations = update(addresses).address_locations;
    let row = |sent: AddressLocationUpdate| serde_json::json!({"addressLocation": sent.address_location, "addresses": sent.addresses});
    let rows: Vec<_> = locations.into_iter().map(row).collect();
    Ok(serde_json::to_vec(&serde_json::json!({"value": rows}))?)
}
