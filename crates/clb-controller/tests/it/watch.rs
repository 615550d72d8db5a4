//! Lists and watches: what is asked, what is told, and what becomes of everything that goes wrong.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use clb_controller::Stopped;
use clb_controller::kube::WatchConfig;
use clb_controller::watched::WatchEvent;
use clb_sim::fault::{FaultPlan, How, What, When};
use clb_sim::kube::KubeSimulation;
use k8s_openapi::api::core::v1::Service;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::LocalSet;
use tokio::time::timeout;

use crate::watching::{
    Answer, HOUR, SECOND, Watching, create, delete, event, fault, label, list, scripted, service, serving,
    simulation, start, start_with,
};

fn refuse(status: u16, reason: &str) -> How {
    How::Refuse { status, code: reason.to_owned() }
}

fn watching(router: Router) -> Watching {
    start::<Service>(router, None, WatchConfig::default())
}

/// One that has listed `a` and watches from version 3 on.
async fn listed() -> (KubeSimulation, Watching) {
    let simulation = simulation(&["a"]);
    let watching = watching(simulation.router());
    assert_eq!(watching.news().await, ["list", "began", "applied a@3", "done", "watch 3"]);
    (simulation, watching)
}

/// Runs a test in virtual time, with tasks that need not be sent anywhere.
async fn local(test: impl Future<Output = ()>) {
    LocalSet::new().run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_comes_first_in_pages_and_the_watch_goes_on_from_its_version() {
    local(async {
        let simulation = simulation(&["a", "b", "c"]);
        let config = WatchConfig { page_size: 2, ..WatchConfig::default() };
        let watching = start::<Service>(simulation.router(), None, config);
        let pages = ["list", "began", "applied a@3", "applied b@4", "page", "applied c@5", "done", "watch 5"];
        assert_eq!(watching.news().await, pages);
        label(&simulation, "a", Some("yes"));
        create(&simulation, "d");
        delete(&simulation, "b");
        assert_eq!(watching.news().await, ["applied a@6", "applied d@7", "deleted b@8"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn lists_are_consistent_and_watches_want_bookmarks_and_end_by_themselves() {
    local(async {
        let simulation = simulation(&["a"]);
        label(&simulation, "a", Some("yes"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let uris = asked.clone();
        let note = from_fn(move |request: Request, next: Next| {
            uris.lock().unwrap().push(request.uri().to_string());
            next.run(request)
        });
        let watching =
            start::<Service>(simulation.router().layer(note), Some("pick=yes"), WatchConfig::default());
        assert_eq!(watching.news().await, ["list", "began", "applied a@4", "done", "watch 4"]);
        let list = "/api/v1/services?&labelSelector=pick%3Dyes&limit=500";
        let watch = "/api/v1/services?&watch=true&timeoutSeconds=290&labelSelector=pick%3Dyes\
                     &allowWatchBookmarks=true&resourceVersion=4";
        assert_eq!(asked.lock().unwrap()[..], [list, watch]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_clean_end_costs_one_watch_and_no_list() {
    local(async {
        let (simulation, watching) = listed().await;
        assert_eq!(watching.news_within(290 * SECOND).await, ["watch 3"]);
        // What happens to others moves the version too, by bookmarks.
        simulation.with_cluster(|cluster| cluster.ensure_namespace("other"));
        assert_eq!(watching.news_within(290 * SECOND).await, ["watch 4"]);
        simulation.set_faults(fault("WATCH", When::Nth(1), How::EndWatch(1)));
        assert_eq!(watching.news_within(290 * SECOND).await, ["watch 4"]);
        create(&simulation, "b");
        assert_eq!(watching.news().await, ["applied b@5", "watch 5"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_expired_watch_is_followed_by_a_list_at_once() {
    local(async {
        for how in [How::Gone, refuse(410, "Expired")] {
            let (simulation, watching) = listed().await;
            simulation.set_faults(fault("WATCH", When::Nth(1), how));
            let expected = "watch 3/interrupted: the watch has expired/list/began/applied a@3/done/watch 3";
            assert_eq!(watching.news_within(290 * SECOND).await.join("/"), expected);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_breaks_within_an_event_goes_on_without_a_list() {
    local(async {
        let (simulation, watching) = listed().await;
        simulation.set_faults(fault("WATCH", When::Nth(1), How::Truncate(700)));
        assert_eq!(watching.news_within(290 * SECOND).await, ["watch 3"]);
        (0..4).for_each(|number| create(&simulation, &format!("s{number}")));
        let news = watching.news_within(SECOND).await.join("/");
        let why = "interrupted: Error reading events stream: ServiceError: an injected fault";
        assert_eq!(news, format!("applied s0@4/{why}/watch 4/applied s1@5/applied s2@6/applied s3@7"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_well_again_says_so_when_it_has_nothing_else_to_tell() {
    local(async {
        // With nothing to tell, when it has lasted for a while, once.
        let (simulation, watching) = listed().await;
        simulation.set_faults(fault("WATCH", When::Nth(1), refuse(503, "ServiceUnavailable")));
        let why = "interrupted: an injected fault (503 ServiceUnavailable)";
        assert_eq!(watching.news_within(292 * SECOND).await, ["watch 3", why, "watch 3"]);
        assert_eq!(watching.news_within(10 * SECOND).await, ["resumed"]);
        assert_eq!(watching.news_within(200 * SECOND).await, [""; 0]);
        // With an event, which says enough.
        let (simulation, watching) = listed().await;
        simulation.set_faults(fault("WATCH", When::Nth(1), refuse(503, "ServiceUnavailable")));
        assert_eq!(watching.news_within(292 * SECOND).await, ["watch 3", why, "watch 3"]);
        create(&simulation, "b");
        assert_eq!(watching.news_within(200 * SECOND).await, ["applied b@4"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_is_enough_to_be_well_again() {
    local(async {
        let bookmark = json!({"kind": "Service", "apiVersion": "v1", "metadata": {"resourceVersion": "6"}});
        let status = json!({"kind": "Status", "status": "Failure", "code": 500, "message": "etcd", "reason": "InternalError"});
        let broken = Answer::Body(500, status);
        let told = Answer::Silence(vec![event("BOOKMARK", &bookmark)]);
        let watching = watching(scripted([list("5", &[]), broken, told]));
        let news = watching.news_within(2 * SECOND).await;
        assert_eq!(news[..4], ["list", "began", "done", "watch 5"]);
        assert_eq!(news[4..], ["interrupted: etcd (500 InternalError)", "watch 5", "resumed"]);
        assert_eq!(watching.news_within(20 * SECOND).await, [""; 0]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn whatever_fails_is_asked_for_again_after_a_wait() {
    local(async {
        let expired = "interrupted: the watch has expired";
        let refused = "interrupted: an injected fault (403 Forbidden)";
        let throttled =
            "interrupted: Too many requests, please try again later. (429 Failed to parse error data)";
        let cases = [
            (refuse(403, "Forbidden"), refused),
            (How::Throttle { seconds: 1 }, throttled),
            (How::Gone, expired),
        ];
        for (how, why) in cases {
            let simulation = simulation(&["a"]);
            simulation.set_faults(fault("GET", When::Nth(1), how));
            let watching = watching(simulation.router());
            let list = ["list", why, "list", "began", "applied a@3", "done", "watch 3"];
            assert_eq!(watching.news_within(SECOND).await, list);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_midway_is_begun_again() {
    local(async {
        let cases = [
            (How::Gone, "the watch has expired"),
            (refuse(500, "InternalError"), "an injected fault (500 InternalError)"),
        ];
        for (how, why) in cases {
            let simulation = simulation(&["a", "b"]);
            simulation.set_faults(fault("GET", When::Nth(2), how));
            let config = WatchConfig { page_size: 1, ..WatchConfig::default() };
            let watching = start::<Service>(simulation.router(), None, config);
            let why = format!("interrupted: {why}");
            let news = watching.news_within(SECOND).await;
            assert_eq!(news[..5], ["list", "began", "applied a@3", "page", why.as_str()]);
            assert_eq!(news[5..8], ["list", "began", "applied a@3"]);
            assert_eq!(news[8..], ["page", "applied b@4", "done", "watch 4"]);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_list_older_than_what_was_seen_is_asked_again_and_nothing_of_it_is_told() {
    local(async {
        let (simulation, watching) = listed().await;
        create(&simulation, "b");
        assert_eq!(watching.news().await, ["applied b@4"]);
        simulation.set_faults(fault("GET", When::Always, How::Stale(1)));
        watching.ask.send_replace(1);
        let stale =
            ["list", "interrupted: the list of version 3 is older than version 4, which was seen before"];
        let news = watching.news_within(60 * SECOND).await;
        assert!((5..9).contains(&(news.len() / 2)), "waits grow: {news:?}");
        assert!(news.chunks(2).all(|pair| pair == stale), "{news:?}");
        simulation.set_faults(FaultPlan::default());
        let news = watching.news_within(30 * SECOND).await;
        assert_eq!(news, ["list", "began", "applied a@3", "applied b@4", "done", "watch 4"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_counts_as_seen() {
    local(async {
        let (simulation, watching) = listed().await;
        simulation.with_cluster(|cluster| cluster.ensure_namespace("other"));
        assert_eq!(watching.news_within(61 * SECOND).await, [""; 0]);
        simulation.set_faults(fault("GET", When::Nth(1), How::Stale(1)));
        watching.ask.send_replace(1);
        let why = "interrupted: the list of version 3 is older than version 4, which was seen before";
        let news = watching.news_within(SECOND).await;
        assert_eq!(news, ["list", why, "list", "began", "applied a@3", "done", "watch 4"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_event_that_comes_twice_is_told_once() {
    local(async {
        let simulation = simulation(&["a"]);
        simulation.set_faults(fault("WATCH", When::Always, How::Repeat));
        let watching = watching(simulation.router());
        watching.news().await;
        label(&simulation, "a", Some("yes"));
        delete(&simulation, "a");
        create(&simulation, "a");
        assert_eq!(watching.news().await, ["applied a@4", "deleted a@5", "applied a@6"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_older_event_after_a_newer_one_is_followed_by_a_list_at_once() {
    local(async {
        let events = vec![event("ADDED", &service("b", "8")), event("DELETED", &service("a", "7"))];
        let router = scripted([list("5", &[]), Answer::Silence(events), list("8", &[service("b", "8")])]);
        let news = watching(router).news().await.join("/");
        let why = "interrupted: the watch went back from version 8 to version 7";
        let expected =
            format!("list/began/done/watch 5/applied b@8/{why}/list/began/applied b@8/done/watch 8");
        assert_eq!(news, expected);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn errors_and_lines_that_are_no_events_interrupt_a_watch_that_lasted() {
    local(async {
        let status = json!({"kind": "Status", "status": "Failure", "code": 500, "message": "etcd", "reason": "InternalError"});
        let cases = [
            // This may pass: the watch goes on.
            (event("ERROR", &status), "etcd (500 InternalError)", "watch 6"),
            // This would come again.
            (event("CHANGED", &service("a", "7")), "the watch told an event that cannot be read", "list"),
            (json!([1]), "Error deserializing response: invalid type: integer `1`", "list"),
        ];
        for (line, why, next) in cases {
            let events = vec![event("ADDED", &service("a", "6")), line];
            let watching = watching(scripted([list("5", &[]), Answer::Events(events)]));
            let news = watching.news_within(SECOND).await.join("/");
            assert!(news.starts_with(&format!("list/began/done/watch 5/applied a@6/interrupted: {why}")), "{news}");
            assert!(news.ends_with(&format!("/{next}")), "{news}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_malformed_object_is_told_as_such_and_the_rest_goes_on() {
    local(async {
        let broken = |version| {
            let mut object = service("broken", version);
            object["spec"]["ports"] = json!("80");
            object
        };
        let events = vec![
            event("MODIFIED", &broken("6")),
            event("MODIFIED", &service("a", "7")),
            event("DELETED", &broken("8")),
        ];
        let first = list("5", &[broken("4"), service("a", "5")]);
        let news = watching(scripted([first, Answer::Silence(events)])).news().await;
        let why = "Invalid type string \"80\". Expected a sequence";
        let (in_list, in_watch) =
            (format!("malformed broken@4: {why}"), format!("malformed broken@6: {why}"));
        assert_eq!(news[..4], ["list", "began", in_list.as_str(), "applied a@5"]);
        assert_eq!(news[4..], ["done", "watch 5", in_watch.as_str(), "applied a@7", "deleted broken@8"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn objects_come_without_what_nobody_reads() {
    local(async {
        let mut heavy = service("a", "5");
        heavy["metadata"]["managedFields"] = json!([{"manager": "kubectl"}]);
        heavy["metadata"]["annotations"] =
            json!({"kubectl.kubernetes.io/last-applied-configuration": "{}", "kept": "yes"});
        let mut newer = heavy.clone();
        newer["metadata"]["resourceVersion"] = json!("6");
        let mut last = newer.clone();
        last["metadata"]["resourceVersion"] = json!("7");
        last["spec"]["ports"] = json!(80);
        let mut malformed = last.clone();
        malformed["metadata"]["resourceVersion"] = json!("8");
        let events = vec![event("MODIFIED", &newer), event("DELETED", &last), event("MODIFIED", &malformed)];
        let router = scripted([list("5", &[heavy]), Answer::Silence(events)]);
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = told.clone();
        let watching = start_with::<Service>(router, None, WatchConfig::default(), async move |event| {
            let metadata = match event {
                WatchEvent::Applied(service) => &service.metadata,
                WatchEvent::Deleted(metadata) | WatchEvent::Malformed { metadata, .. } => metadata,
                WatchEvent::ListBegan
                | WatchEvent::ListDone
                | WatchEvent::Interrupted(_)
                | WatchEvent::Resumed => return Ok(()),
            };
            heard.lock().unwrap().push(serde_json::to_value(metadata).unwrap());
            Ok(())
        });
        watching.news().await;
        let expected = ["5", "6", "7", "8"]
            .map(|version| json!({"name": "a", "resourceVersion": version, "annotations": {"kept": "yes"}}));
        assert_eq!(told.lock().unwrap()[..], expected);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_label_disappears_is_deleted_for_a_watch_with_a_selector() {
    local(async {
        let simulation = simulation(&["a", "b"]);
        label(&simulation, "a", Some("yes"));
        let watching = start::<Service>(simulation.router(), Some("pick=yes"), WatchConfig::default());
        assert_eq!(watching.news().await, ["list", "began", "applied a@5", "done", "watch 5"]);
        label(&simulation, "a", None);
        label(&simulation, "b", Some("yes"));
        assert_eq!(watching.news().await, ["deleted a@6", "applied b@7"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_list_is_asked_for_on_demand_and_begins_after_the_demand() {
    local(async {
        let (simulation, watching) = listed().await;
        watching.ask.send_replace(1);
        let relist = ["list", "began", "applied a@3", "done", "watch 3"];
        assert_eq!(watching.news().await, relist);
        // Two demands are met by one list, and one that comes while a list is on its way by the next.
        simulation.set_faults(fault("GET", When::Nth(1), How::Delay(1_000)));
        watching.ask.send_replace(2);
        watching.ask.send_replace(3);
        assert_eq!(watching.news_within(SECOND / 2).await, ["list"]);
        watching.ask.send_replace(4);
        let twice = ["began", "applied a@3", "done", "list", "began", "applied a@3", "done", "watch 3"];
        assert_eq!(watching.news_within(SECOND).await, twice);
        // One that comes before a list is asked for again is met by that list too.
        simulation.set_faults(fault("GET", When::Nth(1), refuse(503, "ServiceUnavailable")));
        watching.ask.send_replace(5);
        let why = "interrupted: an injected fault (503 ServiceUnavailable)";
        assert_eq!(watching.news().await, ["list", why]);
        watching.ask.send_replace(6);
        assert_eq!(watching.news_within(SECOND).await, relist);
        drop(watching.ask);
        tokio::time::sleep(SECOND).await;
        assert_eq!(watching.transcript.lock().unwrap()[..], [""; 0]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn everything_is_listed_again_after_one_to_two_hours() {
    local(async {
        let (_simulation, watching) = listed().await;
        assert!(watching.news_within(HOUR).await.iter().all(|news| news == "watch 3"));
        let news = watching.news_within(HOUR).await;
        let lists = news.iter().filter(|news| *news == "list").count();
        let at = news.iter().position(|news| news == "list").unwrap();
        assert_eq!(
            (lists, &news[at..at + 5]),
            (1, &["list", "began", "applied a@3", "done", "watch 3"].map(str::to_owned)[..])
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_says_nothing_and_does_not_end_is_given_up() {
    local(async {
        let late = Answer::Late(280 * SECOND, vec![event("ADDED", &service("a", "6"))]);
        let watching = watching(scripted([list("5", &[]), late]));
        let news = watching.news_within(299 * SECOND).await;
        assert_eq!(news, ["list", "began", "done", "watch 5", "applied a@6"]);
        let why = "interrupted: the watch has gone silent and does not end";
        assert_eq!(watching.news_within(2 * SECOND).await, [why, "watch 6"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_not_answered_is_given_up() {
    local(async {
        let simulation = simulation(&["a"]);
        let late = How::Delay(1_000_000);
        simulation.set_faults(fault("GET", When::Nth(1), late.clone()));
        let watching = watching(simulation.router());
        let why = "interrupted: no answer within 70s";
        let listed = ["list", why, "list", "began", "applied a@3", "done", "watch 3"];
        assert_eq!(watching.news_within(71 * SECOND).await, listed);
        simulation.set_faults(fault("WATCH", When::Nth(1), late));
        assert_eq!(watching.news_within(362 * SECOND).await, ["watch 3", why, "watch 3"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn nothing_more_is_read_while_the_sink_takes_its_time() {
    local(async {
        let simulation = simulation(&["a", "b", "c"]);
        let permits = Arc::new(Semaphore::new(0));
        let sink_permits = permits.clone();
        let config = WatchConfig { page_size: 2, ..WatchConfig::default() };
        let watching = start_with::<Service>(simulation.router(), None, config, async move |_| {
            sink_permits.acquire().await.unwrap().forget();
            Ok(())
        });
        assert_eq!(watching.news_within(HOUR).await, ["list", "began"]);
        permits.add_permits(2);
        assert_eq!(watching.news_within(HOUR).await, ["applied a@3", "applied b@4"]);
        permits.add_permits(3);
        assert_eq!(watching.news().await, ["page", "applied c@5", "done", "watch 5"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn it_ends_when_the_sink_says_so() {
    local(async {
        let simulation = simulation(&["a", "b"]);
        let stops_at = async |event: &WatchEvent<Service>| {
            if matches!(event, WatchEvent::Applied(_)) { Err(Stopped) } else { Ok(()) }
        };
        let watching = start_with::<Service>(simulation.router(), None, WatchConfig::default(), stops_at);
        assert_eq!(watching.news_within(HOUR).await, ["list", "began", "applied a@3"]);
        assert_eq!(timeout(SECOND, watching.task).await.unwrap().unwrap(), Stopped);
    })
    .await;
}

/// How many requests are made in an hour, and in the last half of it.
async fn requests_in_an_hour(router: Router) -> (usize, usize) {
    let watching = watching(router);
    let count =
        |news: Vec<String>| news.iter().filter(|news| *news == "list" || news.starts_with("watch ")).count();
    let first = count(watching.news_within(HOUR / 2).await);
    let last = count(watching.news_within(HOUR / 2).await);
    watching.task.abort();
    (first + last, last)
}

#[tokio::test(start_paused = true)]
async fn whatever_goes_wrong_again_and_again_is_not_asked_for_in_a_loop() {
    local(async {
        let always = |verb: &'static str, how| {
            let simulation = simulation(&["a"]);
            simulation.set_faults(fault(verb, When::Always, how));
            simulation.router()
        };
        let backwards = {
            let odd = Arc::new(Mutex::new(false));
            serving(move || {
                let mut odd = odd.lock().unwrap();
                *odd = !*odd;
                if *odd { list("5", &[]) } else { Answer::Events(vec![event("ADDED", &service("a", "4"))]) }
            })
        };
        let routers = [
            always("GET", How::LoseRequest),
            always("GET", refuse(503, "ServiceUnavailable")),
            always("GET", refuse(403, "Forbidden")),
            always("GET", How::Gone),
            always("WATCH", How::LoseAnswer),
            always("WATCH", How::Truncate(0)),
            always("WATCH", How::EndWatch(0)),
            always("WATCH", How::Gone),
            backwards,
        ];
        for (at, router) in routers.into_iter().enumerate() {
            let (all, last) = requests_in_an_hour(router).await;
            // A wait of at least 15 s between two, or between two pairs of a list and a watch; shorter ones only at first.
            assert!(all <= 2 * (240 + 8) && (60..=2 * 121).contains(&last), "{at}: {all}, {last}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_comes_back_after_an_hour_is_heard_within_half_a_minute() {
    local(async {
        let (simulation, watching) = listed().await;
        simulation.set_faults(FaultPlan::new(0).with(When::Always, What::default(), How::LoseRequest));
        let news = watching.news_within(HOUR).await;
        assert!(news.iter().all(|news| news == "watch 3" || news.starts_with("interrupted: ")), "{news:?}");
        assert!(news.len() <= 2 * 248, "{}", news.len());
        create(&simulation, "b");
        simulation.set_faults(FaultPlan::default());
        assert_eq!(watching.news_within(Duration::from_secs(30)).await, ["watch 3", "applied b@4"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_can_be_a_task_of_any_runtime() {
    let simulation = simulation(&["a"]);
    let (told, mut heard) = tokio::sync::mpsc::channel::<WatchEvent<Service>>(1);
    let api = kube::Api::all(kube::Client::new(simulation.router(), "default"));
    let (_ask, asked) = tokio::sync::watch::channel(0);
    let sink = async move |event| told.send(event).await.map_err(|_| Stopped);
    let task = tokio::spawn(clb_controller::kube::watch(api, None, WatchConfig::default(), asked, sink));
    assert_eq!(heard.recv().await, Some(WatchEvent::ListBegan));
    drop(heard);
    assert_eq!(task.await.unwrap(), Stopped);
}
