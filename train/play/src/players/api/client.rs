//! One endpoint: requests, with retries if the server is busy.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use lapwing_env::rng::Stream;
use ureq::Agent;
use ureq::http::{StatusCode, Uri};

/// The maximum number of attempts of a request.
const ATTEMPTS: usize = 6;
const LONGEST_PAUSE: Duration = Duration::from_secs(120);
/// The maximum number of bytes of an answer.
const LARGEST: u64 = 8 << 20;

/// An endpoint.
pub(super) struct ApiClient {
    agent: Agent,
    /// without `/chat/completions`, which is appended
    pub(crate) url: String,
    key: Option<String>,
    /// before the second attempt, without jitter; it doubles from attempt to attempt
    pub(super) pause: Duration,
}

struct FailedAttempt {
    /// its kind, for the counts
    kind: String,
    /// the text of the error
    what: String,
    /// whether to retry
    passes: bool,
    /// the pause that the server requests
    wait: Option<Duration>,
}

impl ApiClient {
    pub(super) fn new(
        url: &str,
        key: Option<String>,
        timeout: Duration,
    ) -> Result<ApiClient, String> {
        let wrong = |problem: &str| {
            format!(
                "the address of the API {problem}: wanted http(s)://HOST[:PORT]/PATH, such as http://127.0.0.1:8000/v1"
            )
        };
        if url.contains('@') || url.contains('?') {
            // Not quoted, because the text may be a secret.
            return Err(wrong("has a name, a password or a question in it"));
        }
        let uri: Uri = url.parse().unwrap_or_default();
        let (Some("http" | "https"), Some(host)) = (uri.scheme_str(), uri.host()) else {
            return Err(wrong(&format!("{} is none", excerpt(url))));
        };
        let key = key.map(|key| key.trim().to_owned());
        let key = key.filter(|key| !key.is_empty());
        if let Some(key) = &key {
            if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
                let problem = "OPENAI_API_KEY contains characters that no key has, such as a line end: set it again";
                return Err(problem.to_owned());
            }
            if uri.scheme_str() == Some("http") && !is_loopback(host) {
                return Err(format!(
                    "OPENAI_API_KEY would be sent to {host} without encryption: use https, or unset OPENAI_API_KEY if \
                     the server needs no key"
                ));
            }
        }
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // The key is sent to this address only.
            .max_redirects(0)
            .timeout_connect(Some(Duration::from_secs(20).min(timeout)))
            .timeout_global(Some(timeout))
            .user_agent(concat!("lapwing/", env!("CARGO_PKG_VERSION")));
        Ok(ApiClient {
            agent: config.build().into(),
            url: url.trim_end_matches('/').to_owned(),
            key,
            pause: Duration::from_millis(500),
        })
    }

    /// Returns the server's answer, after retries if needed, and the kinds of the failed attempts. `stop` ends the
    /// waiting. The key is removed from the answer.
    pub(super) fn ask(
        &self,
        request: &str,
        seed: u64,
        stop: &AtomicBool,
    ) -> (Result<String, String>, Vec<String>) {
        let (url, mut jitter) = (&self.url, Stream::new(seed, "retry"));
        let mut failures = Vec::new();
        let error = loop {
            let failure = match self.attempt(request) {
                Ok(body) => return (Ok(body), failures),
                Err(failure) => failure,
            };
            failures.push(failure.kind);
            let attempts = failures.len();
            if let Some(wait) = failure.wait.filter(|wait| *wait > LONGEST_PAUSE) {
                break format!(
                    "the API at {url} requests a pause of {} s (Retry-After): try again then; its answers so far are in \
                     the cache",
                    wait.as_secs()
                );
            }
            // Half of the pause plus a random part of up to half, so that requests that failed together are not retried
            // together.
            let usual = self.pause * (1 << (attempts - 1));
            let usual = usual.mul_f64(0.5 + jitter.unit()).min(LONGEST_PAUSE);
            let pause = failure.wait.map_or(usual, |wait| wait.max(usual));
            if !failure.passes || attempts == ATTEMPTS || !rest(pause, stop) {
                let tried = match attempts {
                    1 => String::new(),
                    attempts => format!(" ({attempts} attempts)"),
                };
                break format!("the API at {url} {}{tried}", failure.what);
            }
        };
        (Err(error), failures)
    }

    fn attempt(&self, request: &str) -> Result<String, FailedAttempt> {
        let mut post = self
            .agent
            .post(format!("{}/chat/completions", self.url))
            .header("Content-Type", "application/json");
        if let Some(key) = &self.key {
            post = post.header("Authorization", format!("Bearer {key}"));
        }
        let mut answer = post.send(request).map_err(|e| self.broken(&e))?;
        let wait = answer.headers().get("retry-after");
        let wait = wait.and_then(|wait| wait.to_str().ok()?.trim().parse().ok());
        let wait = wait.filter(|wait: &f64| (0.0..1e9).contains(wait));
        let body = answer.body_mut().with_config().limit(LARGEST);
        let body = body.read_to_vec();
        let status = answer.status();
        if status == StatusCode::OK {
            let body = body.map_err(|e| self.broken(&e))?;
            return Ok(self.without_key(&String::from_utf8_lossy(&body)));
        }
        // The status suffices if the body is damaged.
        let body = self.without_key(&String::from_utf8_lossy(&body.unwrap_or_default()));
        let passes = status.is_server_error() || [408, 425, 429].contains(&status.as_u16());
        let cure = match status.as_u16() {
            401 | 403 if self.key.is_none() => " (OPENAI_API_KEY is not set)",
            401 | 403 => " (is OPENAI_API_KEY right?)",
            404 => " (wanted the address before /chat/completions, and a model that is there)",
            300..=399 => " (redirects are not followed: name the address that it leads to)",
            _ => "",
        };
        Err(FailedAttempt {
            kind: format!("status {}", status.as_u16()),
            what: format!(
                "answered with status {}{cure}: {}",
                status.as_u16(),
                excerpt(&body)
            ),
            passes,
            wait: wait.map(Duration::from_secs_f64),
        })
    }

    /// No answer, or part of one.
    fn broken(&self, error: &ureq::Error) -> FailedAttempt {
        let (kind, passes) = match error {
            ureq::Error::Timeout(_) => ("timed out", true),
            ureq::Error::BodyExceedsLimit(_) => ("too large", false),
            ureq::Error::HostNotFound => ("no such host", false),
            ureq::Error::Io(_) | ureq::Error::ConnectionFailed | ureq::Error::Protocol(_) => {
                ("connection", true)
            }
            _ => ("connection", false),
        };
        FailedAttempt {
            kind: kind.to_owned(),
            what: format!("gave no answer: {}", self.without_key(&error.to_string())),
            passes,
            wait: None,
        }
    }

    /// A server may echo what it received, including the key.
    fn without_key(&self, text: &str) -> String {
        match &self.key {
            Some(key) => text.replace(key, "[key]"),
            None => text.to_owned(),
        }
    }
}

/// Quotes untrusted text for a message: at most this many characters, with control characters escaped.
pub(super) fn excerpt(text: &str) -> String {
    const MOST: usize = 300;
    let mut letters = text.trim().chars();
    let begin: String = letters.by_ref().take(MOST).collect();
    let rest = if letters.next().is_some() { "..." } else { "" };
    format!("{begin:?}{rest}")
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || address
            .parse()
            .is_ok_and(|address: IpAddr| address.is_loopback())
}

fn rest(pause: Duration, stop: &AtomicBool) -> bool {
    let end = Instant::now() + pause;
    while !stop.load(Relaxed) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(url: &str, key: Option<&str>) -> Result<ApiClient, String> {
        let key = key.map(str::to_owned);
        ApiClient::new(url, key, Duration::from_secs(1))
    }

    #[test]
    fn a_key_goes_nowhere_in_the_open() {
        for url in [
            "https://api.example.org/v1",
            "http://localhost:8000/v1",
            "http://127.0.0.1:8000/v1/",
            "http://[::1]:8000/v1",
        ] {
            let client = made(url, Some(" sk-secret\n")).map_err(|error| format!("{url}: {error}"));
            assert_eq!(client.unwrap().url, url.trim_end_matches('/'));
        }
        let refused = made("http://192.168.0.7:8000/v1", Some("sk-secret"))
            .err()
            .unwrap();
        assert!(
            refused.contains("192.168.0.7 without encryption"),
            "{refused}"
        );
        assert!(!refused.contains("sk-secret"));
        assert!(made("http://192.168.0.7:8000/v1", None).is_ok());
        // A name that only begins like the loopback address.
        assert!(made("http://localhost.example.org/v1", Some("k")).is_err());
        assert!(made("http://127.0.0.1.example.org/v1", Some("k")).is_err());
        let broken = made("https://a/v1", Some("sk-\nsecret")).err().unwrap();
        assert!(!broken.contains("secret"), "{broken}");
    }

    #[test]
    fn what_is_no_address_is_said() {
        for url in ["", "localhost:8000", "ftp://a/v1", "http://", "/v1", "a b"] {
            let refused = made(url, None).err().unwrap();
            assert!(
                refused.contains("wanted http(s)://HOST"),
                "{url}: {refused}"
            );
        }
        let refused = made("https://me:hidden@a/v1", None).err().unwrap();
        assert!(!refused.contains("hidden"), "{refused}");
    }
}
