//! Pods that hold our finalizer and that no watch of ours sees.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ListParams};
use kube::{Client, Error};

use crate::convert::EGRESS_LABEL;
use crate::objects::POD_FINALIZER;

/// How many pods a page holds: what `kubectl` asks for at once, a few hundred kilobytes of metadata.
const PAGE: u32 = 500;

/// The pods that hold our finalizer and have no egress label, such as those whose label was taken away while nobody watched.
/// The watch of labelled pods does not see them, and nobody else would ever release them: hand them in at the start, and
/// again from time to time.
///
/// Lists the metadata of all pods that have no such label, page by page, and reads those few that are strays. It needs `list` and
/// `get` of `pods` in all namespaces.
///
/// # Errors
/// The first of the requests that fails. An expired list (410) is one of these; ask again.
pub async fn stray_pods(client: &Client) -> Result<Vec<Pod>, Error> {
    let all: Api<Pod> = Api::all(client.clone());
    let mut params = ListParams::default().labels(&format!("!{EGRESS_LABEL}")).limit(PAGE);
    let mut strays = Vec::new();
    loop {
        let page = all.list_metadata(&params).await?;
        for listed in page.items.iter().map(|item| &item.metadata).filter(|metadata| is_stray(metadata)) {
            let (Some(namespace), Some(name)) = (&listed.namespace, &listed.name) else { continue };
            let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
            // It may have gone since, or be one of the watched now.
            strays.extend(pods.get_opt(name).await?.filter(|pod| is_stray(&pod.metadata)));
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(strays),
        }
    }
}

fn is_stray(metadata: &ObjectMeta) -> bool {
    let is_labelled = metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(EGRESS_LABEL));
    let is_held = metadata.finalizers.iter().flatten().any(|finalizer| finalizer == POD_FINALIZER);
    is_held && !is_labelled
}
