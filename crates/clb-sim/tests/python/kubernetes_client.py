"""The Kubernetes client for Python, unchanged, against the API server whose kubeconfig is the only argument."""

import sys
import threading

from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException

config.load_kube_config(config_file=sys.argv[1])
core = client.CoreV1Api()
discovery = client.DiscoveryV1Api()
coordination = client.CoordinationV1Api()


def service(name):
    ports = [client.V1ServicePort(port=80, target_port=8080)]
    metadata = client.V1ObjectMeta(name=name, labels={"app": name})
    return client.V1Service(metadata=metadata, spec=client.V1ServiceSpec(type="LoadBalancer", ports=ports))


def refused(call, *arguments, **named):
    try:
        call(*arguments, **named)
    except ApiException as refusal:
        return refusal.status
    raise AssertionError(f"{call} was not refused")


# Lists, in pages and by selector.
for name in ["a", "b", "c"]:
    core.create_namespaced_service("default", service(name))
assert refused(core.create_namespaced_service, "default", service("a")) == 409
first = core.list_namespaced_service("default", limit=2)
assert [item.metadata.name for item in first.items] == ["a", "b"], first
assert first.metadata.remaining_item_count == 1
rest = core.list_namespaced_service("default", limit=2, _continue=first.metadata._continue)
assert [item.metadata.name for item in rest.items] == ["c"]
picked = core.list_service_for_all_namespaces(label_selector="app in (a, c)")
assert [item.metadata.name for item in picked.items] == ["a", "c"]

# Patches: strategic, merge, JSON, of the status, and server-side apply.
core.patch_namespaced_service("a", "default", {"spec": {"ports": [{"port": 81, "name": "more"}, {"port": 80, "name": "web"}]}})
assert [port.port for port in core.read_namespaced_service("a", "default").spec.ports] == [80, 81]
core.patch_namespaced_service("a", "default", [{"op": "remove", "path": "/spec/ports/1"}])
assert [port.port for port in core.read_namespaced_service("a", "default").spec.ports] == [80]
status = {"status": {"loadBalancer": {"ingress": [{"ip": "20.0.0.1"}]}}}
patched = core.patch_namespaced_service_status("a", "default", status)
assert patched.status.load_balancer.ingress[0].ip == "20.0.0.1"
applied = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "applied", "labels": {"x": "y"}},
    "spec": {"ports": [{"port": 80}]},
}
core.patch_namespaced_service(
    "applied", "default", applied, field_manager="python", _content_type="application/apply-patch+yaml"
)
assert core.read_namespaced_service("applied", "default").metadata.managed_fields[0].manager == "python"
core.delete_namespaced_service("applied", "default")

# Conflicts, and objects that may not be.
old = core.read_namespaced_service("b", "default")
core.patch_namespaced_service("b", "default", {"metadata": {"labels": {"x": "y"}}})
assert refused(core.replace_namespaced_service, "b", "default", old) == 409
assert refused(core.patch_namespaced_service, "b", "default", {"spec": {"type": "Odd"}}) == 422
assert refused(core.read_namespaced_service, "none", "default") == 404

# A watch from a list on, which ends by itself.
listed = core.list_namespaced_service("default")
writer = threading.Thread(
    target=lambda: (
        core.create_namespaced_service("default", service("d")),
        core.patch_namespaced_service("d", "default", {"metadata": {"labels": {"x": "y"}}}),
        core.delete_namespaced_service("d", "default"),
    )
)
writer.start()
seen = []
watching = watch.Watch()
version = listed.metadata.resource_version
for event in watching.stream(core.list_namespaced_service, "default", resource_version=version, timeout_seconds=60):
    seen.append((event["type"], event["object"].metadata.name))
    if event["type"] == "DELETED":
        watching.stop()
writer.join()
assert seen == [("ADDED", "d"), ("MODIFIED", "d"), ("DELETED", "d")], seen

# Every other kind.
core.create_namespace({"metadata": {"name": "shop"}})
core.create_node({"metadata": {"name": "n"}, "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}})
core.create_namespaced_pod("shop", {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "shop"}}
core.create_namespaced_event("shop", event)
discovery.create_namespaced_endpoint_slice(
    "shop",
    {"metadata": {"name": "s"}, "addressType": "IPv4", "ports": [{"port": 80}], "endpoints": [{"addresses": ["10.1.0.1"]}]},
)
coordination.create_namespaced_lease("shop", {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}})
assert core.list_node().items[0].status.addresses[0].address == "10.0.0.1"
assert core.read_namespaced_pod("p", "shop").status.phase == "Pending"
assert core.list_namespaced_event("shop").items[0].involved_object.name == "p"
endpoint_slice = discovery.list_namespaced_endpoint_slice("shop").items[0]
assert endpoint_slice.endpoints[0].addresses == ["10.1.0.1"]
assert (endpoint_slice.ports[0].name, endpoint_slice.ports[0].protocol) == ("", "TCP")
assert coordination.read_namespaced_lease("l", "shop").spec.holder_identity == "me"
core.delete_collection_namespaced_service("default")
assert core.list_namespaced_service("default").items == []
core.delete_namespace("shop")
assert refused(core.read_namespace, "shop") == 404
print("all is well")
