//! Tokens are asked for as rarely as possible, with the clock paused.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use clb_arm::{CachedCredential, Credential, CredentialError, FreshToken, Token, TokenSource};
use futures::future::join_all;
use tokio::time::{Instant, advance, sleep};

#[derive(Clone, Copy, Debug)]
enum Mood {
    Fine,
    Failing,
    Hanging,
}

/// Takes a second for each token, which is good for an hour.
#[derive(Clone, Debug)]
struct Service(Arc<Mutex<(Mood, u32)>>);

impl Service {
    fn new() -> Self {
        Self(Arc::new(Mutex::new((Mood::Fine, 0))))
    }

    fn set(&self, mood: Mood) {
        self.0.lock().unwrap().0 = mood;
    }

    fn asked(&self) -> u32 {
        self.0.lock().unwrap().1
    }
}

#[async_trait]
impl TokenSource for Service {
    async fn fetch(&self, scope: &str) -> Result<FreshToken, CredentialError> {
        let (mood, number) = {
            let mut state = self.0.lock().unwrap();
            state.1 += 1;
            *state
        };
        sleep(Duration::from_secs(1)).await;
        match mood {
            Mood::Fine => Ok(FreshToken {
                token: Token::new(&format!("{scope}-{number}"))?,
                lifetime: Duration::from_secs(3600),
            }),
            Mood::Failing => Err("the service is ill".into()),
            Mood::Hanging => std::future::pending().await,
        }
    }
}

fn token(number: u32) -> Token {
    Token::new(&format!("a-{number}")).unwrap()
}

async fn get(credential: &CachedCredential<Service>) -> Result<Token, String> {
    credential.token("a").await.map(Option::unwrap).map_err(|error| error.to_string())
}

#[tokio::test(start_paused = true)]
async fn fifty_callers_ask_once_and_get_what_one_got() {
    let service = Service::new();
    let credential = CachedCredential::new(service.clone());
    let all = join_all((0..50).map(|_| get(&credential))).await;
    assert_eq!((all, service.asked()), (vec![Ok(token(1)); 50], 1));

    let service = Service::new();
    service.set(Mood::Failing);
    let credential = CachedCredential::new(service.clone());
    let all = join_all((0..50).map(|_| get(&credential))).await;
    assert_eq!((all, service.asked()), (vec![Err("the service is ill".to_owned()); 50], 1));
}

#[tokio::test(start_paused = true)]
async fn a_token_is_replaced_early_by_one_caller_while_the_others_go_on() {
    let service = Service::new();
    let credential = CachedCredential::new(service.clone());
    assert_eq!(get(&credential).await, Ok(token(1)));
    advance(Duration::from_secs(3299)).await;
    assert_eq!((get(&credential).await, service.asked()), (Ok(token(1)), 1));
    advance(Duration::from_secs(1)).await;
    let all = join_all((0..3).map(|_| get(&credential))).await;
    assert_eq!((all, service.asked()), (vec![Ok(token(2)), Ok(token(1)), Ok(token(1))], 2));
    assert_eq!((get(&credential).await, service.asked()), (Ok(token(2)), 2));
}

#[tokio::test(start_paused = true)]
async fn while_the_service_is_ill_the_old_token_serves_to_its_end() {
    let service = Service::new();
    let credential = CachedCredential::new(service.clone());
    get(&credential).await.unwrap();
    service.set(Mood::Failing);
    advance(Duration::from_secs(3300)).await;
    assert_eq!((get(&credential).await, service.asked()), (Ok(token(1)), 2));
    // Not asked again at once, but soon.
    assert_eq!((get(&credential).await, service.asked()), (Ok(token(1)), 2));
    advance(Duration::from_secs(30)).await;
    assert_eq!((get(&credential).await, service.asked()), (Ok(token(1)), 3));
    advance(Duration::from_secs(300)).await;
    assert_eq!(get(&credential).await, Err("the service is ill".to_owned()));
    service.set(Mood::Fine);
    assert_eq!(get(&credential).await, Ok(token(5)));
}

#[tokio::test(start_paused = true)]
async fn a_service_that_hangs_has_failed_after_ten_seconds() {
    let service = Service::new();
    service.set(Mood::Hanging);
    let credential = CachedCredential::new(service.clone());
    let started = Instant::now();
    let all = join_all((0..5).map(|_| get(&credential))).await;
    let error = "the token service did not answer in 10s".to_owned();
    assert_eq!((all, started.elapsed().as_secs(), service.asked()), (vec![Err(error); 5], 10, 1));
}

#[tokio::test(start_paused = true)]
async fn a_rejected_token_is_dropped_once_and_scopes_are_apart() {
    let service = Service::new();
    let credential = CachedCredential::new(service.clone());
    let first = get(&credential).await.unwrap();
    assert!(credential.reject("a", &first));
    assert_eq!(get(&credential).await, Ok(token(2)));
    // A caller that is late with the same news changes nothing.
    assert!(credential.reject("a", &first));
    assert_eq!((get(&credential).await, service.asked()), (Ok(token(2)), 2));
    assert_eq!(credential.token("b").await.unwrap(), Some(Token::new("b-3").unwrap()));
    assert!(!format!("{credential:?}").contains("a-2"));
}
