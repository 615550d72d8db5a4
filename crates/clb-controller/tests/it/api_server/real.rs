//! A real API server: `etcd` and `kube-apiserver`, on free ports of the loopback interface, for as long as a test runs.
//!
//! The settings are those of `envtest` of `sigs.k8s.io/controller-runtime`, with what is simplest of what is safe: the server
//! makes its own certificate, which clients trust alone, and asks for a token that is made up for each run.

use std::fs::{self, DirBuilder, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use serde_json::json;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::home::{ask, client};

/// Where the two programs are, by the convention of `setup-envtest`.
const ASSETS: &str = "KUBEBUILDER_ASSETS";
/// How long it may take until it answers: it does so in five to ten seconds on a machine that has nothing else to do.
const PATIENCE: Duration = Duration::from_secs(90);

/// A running API server. It is killed when this is dropped, and nothing of it is left.
pub(super) struct RealServer {
    pub(super) client: Client,
    // In the order in which they end.
    _api_server: Process,
    _etcd: Process,
    _folder: Folder,
}

impl RealServer {
    /// Starts one; or says why there is none.
    pub(super) async fn start() -> Result<Self, String> {
        let assets =
            std::env::var_os(ASSETS).ok_or(format!("{ASSETS} names no folder with a kube-apiserver"))?;
        let assets = PathBuf::from(assets);
        for program in ["etcd", "kube-apiserver"] {
            if !assets.join(program).is_file() {
                return Err(format!("there is no {program} in {} ({ASSETS})", assets.display()));
            }
        }
        let folder = Folder::new();
        let [etcd_port, port] = free_ports();
        let etcd_url = format!("http://127.0.0.1:{etcd_port}");
        let etcd = Process::start(
            &assets.join("etcd"),
            &folder.0,
            &[
                &format!("--data-dir={}", folder.path("data")),
                &format!("--listen-client-urls={etcd_url}"),
                &format!("--advertise-client-urls={etcd_url}"),
                "--listen-peer-urls=http://127.0.0.1:0",
                "--unsafe-no-fsync=true",
            ],
        );
        let token = Uuid::new_v4().to_string();
        let (tokens, key) = (folder.path("tokens.csv"), folder.path("service-accounts.pem"));
        fs::write(&tokens, format!("{token},test,test,\"system:masters\"\n")).unwrap();
        fs::write(&key, signing_key()).unwrap();
        let url = format!("https://127.0.0.1:{port}");
        let api_server = Process::start(
            &assets.join("kube-apiserver"),
            &folder.0,
            &[
                &format!("--etcd-servers={etcd_url}"),
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                &format!("--secure-port={port}"),
                // It makes apiserver.crt and apiserver.key there.
                &format!("--cert-dir={}", folder.path("certificates")),
                &format!("--token-auth-file={tokens}"),
                "--authorization-mode=RBAC",
                &format!("--service-account-issuer={url}"),
                &format!("--service-account-key-file={key}"),
                &format!("--service-account-signing-key-file={key}"),
                "--service-cluster-ip-range=10.0.0.0/24",
                "--allow-privileged=true",
                // Nobody makes the accounts that it would ask for.
                "--disable-admission-plugins=ServiceAccount",
            ],
        );
        let mut processes = [etcd, api_server];
        let certificate = Path::new(&folder.path("certificates")).join("apiserver.crt");
        let client = answering(&url, &token, &certificate, &mut processes).await;
        let [etcd, api_server] = processes;
        Ok(Self { client, _api_server: api_server, _etcd: etcd, _folder: folder })
    }
}

/// Waits until it is ready, and returns a client.
async fn answering(url: &str, token: &str, certificate: &Path, processes: &mut [Process]) -> Client {
    let started = Instant::now();
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "real",
        "clusters": [{"name": "real", "cluster": {"server": url, "certificate-authority": certificate}}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "real", "context": {"cluster": "real", "user": "test"}}]})
    .to_string();
    loop {
        let why = match ready(&kubeconfig).await {
            Ok(client) => return client,
            Err(why) => why,
        };
        let has_ended = processes.iter_mut().any(Process::has_ended);
        if has_ended || started.elapsed() > PATIENCE {
            let told: Vec<String> = processes.iter().map(Process::told).collect();
            panic!("the API server does not become ready: {why}\n{}", told.join("\n"));
        }
        sleep(Duration::from_millis(200)).await;
    }
}

async fn ready(kubeconfig: &str) -> Result<Client, String> {
    // Until the certificate is there, this fails too.
    let client = client(kubeconfig).await?;
    let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
    client.request_text(request).await.map_err(|error| error.to_string())?;
    // Its own Service comes last: addresses of Services are given out by then.
    let path = "/api/v1/namespaces/default/services/kubernetes";
    ask(&client, "GET", path, &json!(null)).await.map_err(|error| error.to_string())?;
    Ok(client)
}

/// A key that signs the tokens of service accounts, of which there will be none; the server does not start without one.
fn signing_key() -> String {
    let key = KeyPair::generate(KeySize::Rsa2048).unwrap();
    let text = STANDARD.encode(key.as_der().unwrap().as_ref());
    let lines = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap());
    let body = lines.collect::<Vec<_>>().join("\n");
    format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n")
}

/// Two ports that nobody listens on at the moment.
fn free_ports() -> [u16; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// A folder that only its owner can read, and that is removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("api-server-{}", Uuid::new_v4()));
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is in the target folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A program that runs until this is dropped, and what it said.
struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    fn start(program: &Path, folder: &Path, arguments: &[&str]) -> Self {
        let log = folder.join(program.with_extension("log").file_name().unwrap());
        let file = File::create(&log).unwrap();
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn();
        let child = child.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        Self { child, log }
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// The end of what it said.
    fn told(&self) -> String {
        let told = fs::read(&self.log).unwrap_or_default();
        let told = String::from_utf8_lossy(&told[told.len().saturating_sub(4_000)..]).into_owned();
        format!("{}:\n{told}", self.log.display())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
