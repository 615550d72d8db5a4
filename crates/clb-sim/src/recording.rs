//! Recorded Kubernetes clusters: what the watches of a real API server delivered, line by line.
//!
//! A recording is a text file, perhaps compressed with gzip, with one JSON object on each line, in the order of arrival:
//!
//! * `{"t":0,"resource":"services","list":{…}}`: a full list of one resource (`services`, `endpointslices`, `nodes` or
//!   `pods`), as the server sent it; a later one means that the watch was started anew;
//! * `{"t":1.5,"resource":"nodes","event":{"type":"MODIFIED","object":{…}}}`: one watch event, `t` seconds after the start.
//!
//! The lines of one resource are in the server's order; between resources only the order of arrival is known.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::read::MultiGzDecoder;
use k8s_openapi::Metadata;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// One line of a recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its number in the file, from 1.
    pub number: usize,
    /// When it arrived, from the start of the recording.
    pub at: Duration,
    /// What it says.
    pub entry: Entry,
}

/// What a line says, by resource.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "most lines are of the largest kind")]
pub enum Entry {
    /// Of Services.
    Services(Watched<Service>),
    /// Of EndpointSlices.
    EndpointSlices(Watched<EndpointSlice>),
    /// Of Nodes.
    Nodes(Watched<Node>),
    /// Of Pods.
    Pods(Watched<Pod>),
}

impl Entry {
    /// The resource, as the API calls it.
    #[must_use]
    pub fn resource(&self) -> &'static str {
        match self {
            Self::Services(_) => "services",
            Self::EndpointSlices(_) => "endpointslices",
            Self::Nodes(_) => "nodes",
            Self::Pods(_) => "pods",
        }
    }
}

/// What a list or a watch delivers.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "most are single objects")]
pub enum Watched<K> {
    /// All objects there are.
    List(Vec<K>),
    /// An object exists in this form (`ADDED`, `MODIFIED`).
    Applied(K),
    /// An object no longer exists, or no longer matches the watch; this was its last form.
    Deleted(K),
    /// Everything up to some version has been delivered.
    Bookmark,
    /// The watch ended with an error; a list follows.
    Error(String),
}

/// What cannot be read in a recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line is not one of a recording.
    #[error("{}:{line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// There is nothing in it.
    #[error("{}: there is no line in this recording", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// Reads a recording whole. It is unpacked if it begins as gzip files do, whatever its name.
///
/// # Errors
/// [`RecordingError`] names the file, the first line that makes no sense, and why.
pub fn read(path: &Path) -> Result<Vec<Line>, RecordingError> {
    open(path)?.read_all()
}

/// Opens a recording to be read line by line. It is unpacked as by [`read`].
///
/// # Errors
/// [`RecordingError::File`].
pub fn open(path: &Path) -> Result<Lines, RecordingError> {
    let file_error = |source| RecordingError::File { path: path.to_owned(), source };
    let mut file = BufReader::new(File::open(path).map_err(file_error)?);
    let is_packed = file.fill_buf().map_err(file_error)?.starts_with(&GZIP_MAGIC);
    let unpacked: Box<dyn BufRead + Send> =
        if is_packed { Box::new(BufReader::new(MultiGzDecoder::new(file))) } else { Box::new(file) };
    Ok(Lines::new(path, unpacked))
}

/// The first bytes of every gzip file (RFC 1952, 2.3.1).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Reads a recording that is called `path` in errors.
///
/// # Errors
/// As [`read`].
pub fn parse(path: &Path, text: impl BufRead) -> Result<Vec<Line>, RecordingError> {
    Lines::new(path, text).read_all()
}

/// The lines of a recording, read one at a time; blank ones are left out. After an error there are no more.
pub struct Lines<R = Box<dyn BufRead + Send>> {
    path: PathBuf,
    /// `None` after an error.
    text: Option<R>,
    buffer: Vec<u8>,
    /// The number of the line that was read last.
    number: usize,
    /// The number and time of the last line that was not blank.
    last: Option<(usize, Duration)>,
}

impl<R: BufRead> Lines<R> {
    /// Reads a recording that is called `path` in errors.
    pub fn new(path: &Path, text: R) -> Self {
        Self { path: path.to_owned(), text: Some(text), buffer: Vec::new(), number: 0, last: None }
    }

    fn read_all(self) -> Result<Vec<Line>, RecordingError> {
        let path = self.path.clone();
        let lines = self.collect::<Result<Vec<_>, _>>()?;
        if lines.is_empty() { Err(RecordingError::Empty { path }) } else { Ok(lines) }
    }

    fn read_line(&mut self) -> Result<Option<Line>, RecordingError> {
        let Some(text) = &mut self.text else { return Ok(None) };
        loop {
            self.buffer.clear();
            let length = text.read_until(b'\n', &mut self.buffer);
            let length = length.map_err(|source| RecordingError::File { path: self.path.clone(), source })?;
            if length == 0 {
                return Ok(None);
            }
            self.number += 1;
            if !self.buffer.iter().all(u8::is_ascii_whitespace) {
                break;
            }
        }
        let number = self.number;
        let line_error = |reason| RecordingError::Line { path: self.path.clone(), line: number, reason };
        let (at, entry) = parse_line(&self.buffer).map_err(line_error)?;
        if let Some((line, last)) = self.last.filter(|(_, last)| *last > at) {
            return Err(line_error(format!("t is {at:?}, before the {last:?} of line {line}")));
        }
        self.last = Some((number, at));
        Ok(Some(Line { number, at, entry }))
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = Result<Line, RecordingError>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read_line();
        if read.is_err() {
            self.text = None;
        }
        read.transpose()
    }
}

impl<R> fmt::Debug for Lines<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines")
            .field("path", &self.path)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct RawLine<'a> {
    t: f64,
    #[serde(borrow)]
    resource: Cow<'a, str>,
    #[serde(borrow)]
    list: Option<&'a RawValue>,
    #[serde(borrow)]
    event: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawEvent<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct RawList<K> {
    // An empty list of the server's has `null` here.
    items: Option<Vec<K>>,
}

fn parse_line(line: &[u8]) -> Result<(Duration, Entry), String> {
    let raw: RawLine<'_> = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let at = Duration::try_from_secs_f64(raw.t).map_err(|error| format!("t is {}: {error}", raw.t))?;
    let entry = match raw.resource.as_ref() {
        "services" => Entry::Services(watched(&raw)?),
        "endpointslices" => Entry::EndpointSlices(watched(&raw)?),
        "nodes" => Entry::Nodes(watched(&raw)?),
        "pods" => Entry::Pods(watched(&raw)?),
        other => {
            return Err(format!("resource is {other:?}; it may be services, endpointslices, nodes or pods"));
        }
    };
    Ok((at, entry))
}

fn watched<K: DeserializeOwned>(raw: &RawLine<'_>) -> Result<Watched<K>, String> {
    match (raw.list, raw.event) {
        (Some(list), None) => {
            let list: RawList<K> = decode("list", list)?;
            Ok(Watched::List(list.items.unwrap_or_default()))
        }
        (None, Some(event)) => event_of(&decode("event", event)?),
        (Some(_), Some(_)) => Err("there is both a list and an event".to_owned()),
        (None, None) => Err("there is neither a list nor an event".to_owned()),
    }
}

fn event_of<K: DeserializeOwned>(event: &RawEvent<'_>) -> Result<Watched<K>, String> {
    match event.r#type.as_ref() {
        "ADDED" | "MODIFIED" => decode("event.object", event.object).map(Watched::Applied),
        "DELETED" => decode("event.object", event.object).map(Watched::Deleted),
        "BOOKMARK" => Ok(Watched::Bookmark),
        "ERROR" => Ok(Watched::Error(event.object.get().to_owned())),
        other => {
            Err(format!("event.type is {other:?}; it may be ADDED, MODIFIED, DELETED, BOOKMARK or ERROR"))
        }
    }
}

fn decode<'a, T: Deserialize<'a>>(what: &str, raw: &'a RawValue) -> Result<T, String> {
    serde_json::from_str(raw.get()).map_err(|error| format!("{what}: {error}"))
}

/// What there is of each resource after the last line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FinalLists {
    /// The Services, by namespace and name.
    pub services: Vec<Service>,
    /// The EndpointSlices, by namespace and name.
    pub endpoint_slices: Vec<EndpointSlice>,
    /// The Nodes, by name.
    pub nodes: Vec<Node>,
    /// The Pods, by namespace and name.
    pub pods: Vec<Pod>,
}

impl FinalLists {
    /// Folds the lists and events of a recording.
    #[must_use]
    pub fn of(lines: &[Line]) -> Self {
        let entries = || lines.iter().map(|line| &line.entry);
        Self {
            services: fold(entries().filter_map(|entry| match entry {
                Entry::Services(watched) => Some(watched),
                Entry::EndpointSlices(_) | Entry::Nodes(_) | Entry::Pods(_) => None,
            })),
            endpoint_slices: fold(entries().filter_map(|entry| match entry {
                Entry::EndpointSlices(watched) => Some(watched),
                Entry::Services(_) | Entry::Nodes(_) | Entry::Pods(_) => None,
            })),
            nodes: fold(entries().filter_map(|entry| match entry {
                Entry::Nodes(watched) => Some(watched),
                Entry::Services(_) | Entry::EndpointSlices(_) | Entry::Pods(_) => None,
            })),
            pods: fold(entries().filter_map(|entry| match entry {
                Entry::Pods(watched) => Some(watched),
                Entry::Services(_) | Entry::EndpointSlices(_) | Entry::Nodes(_) => None,
            })),
        }
    }
}

fn fold<'a, K: Clone + Metadata<Ty = ObjectMeta> + 'a>(
    watched: impl Iterator<Item = &'a Watched<K>>,
) -> Vec<K> {
    let key = |object: &K| (object.metadata().namespace.clone(), object.metadata().name.clone());
    let mut objects: BTreeMap<_, &K> = BTreeMap::new();
    for watched in watched {
        match watched {
            Watched::List(items) => objects = items.iter().map(|object| (key(object), object)).collect(),
            Watched::Applied(object) => drop(objects.insert(key(object), object)),
            // Only the object that was deleted, and not one that has taken its name since.
            Watched::Deleted(object) => {
                let uid = |object: &K| object.metadata().uid.clone();
                if objects.get(&key(object)).is_some_and(|held| uid(held) == uid(object)) {
                    objects.remove(&key(object));
                }
            }
            Watched::Bookmark | Watched::Error(_) => {}
        }
    }
    objects.into_values().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Result<Vec<Line>, String> {
        parse(Path::new("x.jsonl"), text.as_bytes()).map_err(|error| error.to_string())
    }

    fn node(name: &str) -> String {
        format!(r#"{{"metadata":{{"name":"{name}"}}}}"#)
    }

    fn event(at: f64, kind: &str, name: &str) -> String {
        format!(r#"{{"t":{at},"resource":"nodes","event":{{"type":"{kind}","object":{}}}}}"#, node(name))
    }

    fn named(name: &str) -> Node {
        let mut node = Node::default();
        node.metadata.name = Some(name.to_owned());
        node
    }

    #[test]
    fn lists_and_events_are_read_and_folded() {
        let list =
            format!(r#"{{"t":0,"resource":"nodes","list":{{"kind":"NodeList","items":[{}]}}}}"#, node("a"));
        let text = [
            list,
            String::new(),
            event(0.5, "ADDED", "b"),
            event(1.0, "DELETED", "a"),
            event(1.0, "BOOKMARK", ""),
        ]
        .join("\n");
        let read = lines(&text).unwrap();
        let expected = [
            (1, 0, Watched::List(vec![named("a")])),
            (3, 500, Watched::Applied(named("b"))),
            (4, 1_000, Watched::Deleted(named("a"))),
            (5, 1_000, Watched::Bookmark),
        ];
        let expected = expected.map(|(number, at, watched)| Line {
            number,
            at: Duration::from_millis(at),
            entry: Entry::Nodes(watched),
        });
        assert_eq!(read, expected);
        assert_eq!(FinalLists::of(&read), FinalLists { nodes: vec![named("b")], ..FinalLists::default() });
    }

    #[test]
    fn a_later_list_replaces_what_was_known() {
        let list = r#"{"t":2,"resource":"nodes","list":{"items":null}}"#;
        let read = lines(&format!("{}\n{list}", event(0.0, "ADDED", "a"))).unwrap();
        assert_eq!(FinalLists::of(&read), FinalLists::default());
    }

    #[test]
    fn an_old_object_that_is_deleted_does_not_take_its_successor_along() {
        let event = |at: u8, kind: &str, uid: &str| {
            let object = format!(r#"{{"metadata":{{"name":"a","uid":"{uid}"}}}}"#);
            format!(r#"{{"t":{at},"resource":"nodes","event":{{"type":"{kind}","object":{object}}}}}"#)
        };
        let read = lines(&[event(0, "ADDED", "new"), event(1, "DELETED", "old")].join("\n")).unwrap();
        let mut successor = named("a");
        successor.metadata.uid = Some("new".to_owned());
        assert_eq!(FinalLists::of(&read).nodes, [successor]);
    }

    #[test]
    fn an_error_event_is_kept_as_it_came() {
        let text = r#"{"t":0,"resource":"pods","event":{"type":"ERROR","object":{"code":410}}}"#;
        let entry = Entry::Pods(Watched::Error(r#"{"code":410}"#.to_owned()));
        assert_eq!(lines(text).unwrap(), [Line { number: 1, at: Duration::ZERO, entry }]);
    }

    #[test]
    fn lines_are_read_one_at_a_time_until_one_makes_no_sense() {
        let text = [event(0.0, "ADDED", "a"), "{".to_owned(), event(1.0, "ADDED", "b")].join("\n");
        let mut lines = Lines::new(Path::new("x.jsonl"), text.as_bytes());
        let entry = Entry::Nodes(Watched::Applied(named("a")));
        assert_eq!(lines.next().unwrap().unwrap(), Line { number: 1, at: Duration::ZERO, entry });
        assert!(lines.next().unwrap().unwrap_err().to_string().starts_with("x.jsonl:2: "));
        assert!(lines.next().is_none());
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named_with_the_reason() {
        let good = event(1.0, "ADDED", "a");
        for (bad, reason) in [
            ("{", "EOF while parsing"),
            (r#"{"t":-1,"resource":"nodes","event":{}}"#, "t is -1"),
            (r#"{"t":1e300,"resource":"nodes","event":{}}"#, "t is 1"),
            (r#"{"t":2,"resource":"secrets","list":{}}"#, "resource is \"secrets\""),
            (r#"{"t":2,"resource":"nodes"}"#, "there is neither a list nor an event"),
            (r#"{"t":2,"resource":"nodes","list":{},"event":{}}"#, "there is both a list and an event"),
            (&event(2.0, "TOUCHED", "a"), "event.type is \"TOUCHED\""),
            (&event(0.5, "ADDED", "a"), "t is 500ms, before the 1s of line 1"),
            (
                r#"{"t":2,"resource":"nodes","event":{"type":"ADDED","object":{"kind":"Pod"}}}"#,
                "event.object: invalid value",
            ),
            (r#"{"t":2,"resource":"pods","list":{"items":[1]}}"#, "list: invalid type"),
        ] {
            let error = lines(&format!("{good}\n{bad}\n")).unwrap_err();
            assert!(error.starts_with(&format!("x.jsonl:2: {reason}")), "{error}");
        }
        assert_eq!(lines("\n").unwrap_err(), "x.jsonl: there is no line in this recording");
        let missing = read(Path::new("no-such-file.jsonl")).unwrap_err().to_string();
        assert!(missing.starts_with("no-such-file.jsonl: "), "{missing}");
    }
}
