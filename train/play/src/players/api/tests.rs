use std::time::Instant;

use lapwing_env::Scenario;

use super::*;
use crate::config::PolicyConfig;
use crate::{Episode, Referee, Seat, UnreadReason};
use stub::{Stub, StubResponse};

#[path = "../../../../cli/tests/stub.rs"]
mod stub;

const SECRET: &str = "sk-a-secret-that-nobody-sees";

fn lake() -> Box<dyn Scenario> {
    let options = json!({ "map": ["SF", "HG"], "step_limit": 2 });
    (lapwing_env::find("frozen-lake").unwrap().configure)(&options).unwrap()
}

fn settings(stub: &Stub, cache: &std::path::Path) -> ApiSettings {
    ApiSettings {
        url: stub.url.clone(),
        model: "some-model".to_owned(),
        key: Some(SECRET.to_owned()),
        temperature: 0.7,
        max_new_tokens: 5,
        template_variables: Map::new(),
        concurrency: 8,
        timeout: Duration::from_millis(500),
        budget: None,
        cache: cache.to_owned(),
    }
}

fn api(settings: ApiSettings) -> Api {
    let policy = PolicyConfig {
        reply: crate::ReplyForm::Word,
        ..PolicyConfig::default()
    };
    let framing = PromptWriter::new(&*lake(), &policy).unwrap();
    let mut api = Api::new(settings, framing).unwrap();
    api.client.pause = Duration::from_millis(5);
    api
}

fn play(api: &mut Api, seats: u64) -> Result<Vec<Episode>, crate::PlayError> {
    let seats: Vec<Seat> = (0..seats).map(Seat::of).collect();
    let referee = Referee {
        step_limit: 2,
        format_penalty: 1.0,
    };
    referee.play(&*lake(), &seats, &mut [api], &mut |_| ())
}

/// The error of one seat, without the key.
fn fails(stub: &Stub) -> (String, ApiUsage) {
    let home = tempfile::tempdir().unwrap();
    let mut api = api(settings(stub, home.path()));
    let error = play(&mut api, 1).unwrap_err().to_string();
    assert!(!error.contains(SECRET), "{error}");
    assert!(!api.account().to_string().contains(SECRET));
    (error.replace(&stub.url, "URL"), api.account())
}

#[test]
fn it_plays_and_a_second_run_costs_nothing() {
    let stub = Stub::new(&[], StubResponse::Says("right", false));
    let home = tempfile::tempdir().unwrap();
    let mut first = api(settings(&stub, home.path()));
    let played = play(&mut first, 3).unwrap();
    assert!(
        played
            .iter()
            .all(|episode| episode.turns[0].text == "right")
    );
    assert_eq!(played[0].turns[0].action, Some(2));
    let account = first.account();
    assert_eq!((account.requests, account.cached), (6, 0));
    assert_eq!(
        (account.prompt_tokens, account.completion_tokens),
        (540, 60)
    );
    let asked = stub.asked();
    assert_eq!(asked.len(), 6);
    assert_eq!(asked[0].path, "/v1/chat/completions");
    assert_eq!(asked[0].authorization, Some(format!("Bearer {SECRET}")));
    let body = &asked[0].body;
    assert_eq!(body["model"], "some-model");
    assert_eq!(body["max_tokens"], 5);
    assert_eq!(body["temperature"], 0.7);
    assert_eq!(body["messages"][0]["role"], "system");
    // Every episode and turn has its own seed.
    let mut seeds: Vec<u64> = asked
        .iter()
        .map(|asked| asked.body["seed"].as_u64().unwrap())
        .collect();
    seeds.sort_unstable();
    seeds.dedup();
    assert_eq!(seeds.len(), 6);
    assert!(seeds.iter().all(|seed| *seed < 1 << 31));

    let mut second = api(settings(&stub, home.path()));
    assert_eq!(play(&mut second, 3).unwrap(), played);
    assert_eq!(stub.asked().len(), 0);
    let account = second.account();
    assert_eq!(
        (account.requests, account.cached, account.tokens()),
        (0, 6, 0)
    );

    // The key is in none of the files.
    let mut files = 0;
    for folder in std::fs::read_dir(home.path()).unwrap() {
        for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            assert!(!text.contains(SECRET) && text.contains("some-model"));
            files += 1;
        }
    }
    assert_eq!(files, 6);

    // Another temperature makes another request.
    let mut other = api(ApiSettings {
        temperature: 0.5,
        ..settings(&stub, home.path())
    });
    play(&mut other, 1).unwrap();
    assert_eq!(stub.asked().len(), 2);
}

#[test]
fn a_damaged_cache_file_is_left_out_and_said() {
    let stub = Stub::new(&[], StubResponse::Says("right", false));
    let home = tempfile::tempdir().unwrap();
    let mut first = api(settings(&stub, home.path()));
    let played = play(&mut first, 1).unwrap();
    let folder = std::fs::read_dir(home.path()).unwrap().next().unwrap();
    let file = std::fs::read_dir(folder.unwrap().path()).unwrap().next();
    let file = file.unwrap().unwrap().path();
    std::fs::write(&file, "half").unwrap();
    let mut second = api(settings(&stub, home.path()));
    assert_eq!(play(&mut second, 1).unwrap(), played);
    let account = second.account();
    assert_eq!((account.requests, account.cached), (1, 1));
    assert_eq!(account.damaged, [file]);
    assert!(
        account
            .to_string()
            .contains("1 damaged cache files left out")
    );
    let mut third = api(settings(&stub, home.path()));
    play(&mut third, 1).unwrap();
    assert_eq!(third.account().requests, 0);
}

#[test]
fn equal_requests_are_asked_once_where_nothing_is_left_to_chance() {
    let stub = Stub::new(&[], StubResponse::Says("right", false));
    let home = tempfile::tempdir().unwrap();
    let mut greedy = api(ApiSettings {
        temperature: 0.0,
        ..settings(&stub, home.path())
    });
    assert_eq!(play(&mut greedy, 10).unwrap().len(), 10);
    let asked = stub.asked();
    // All are in the same two states.
    assert_eq!(asked.len(), 2);
    assert!(asked[0].body.get("seed").is_none());
}

#[test]
fn so_many_are_asked_at_a_time() {
    for concurrency in [1, 3] {
        let stub = Stub::new(&[], StubResponse::Says("right", false));
        let home = tempfile::tempdir().unwrap();
        let mut api = api(ApiSettings {
            concurrency,
            ..settings(&stub, home.path())
        });
        play(&mut api, 9).unwrap();
        assert_eq!(stub.asked().len(), 18);
        assert!(stub.most_at_once() <= concurrency);
        assert!(
            concurrency == 1 || stub.most_at_once() > 1,
            "they wait for each other"
        );
    }
}

#[test]
fn what_passes_is_waited_for() {
    let status = |status, headers| StubResponse::Status(status, headers, "busy".to_owned());
    for (bad, kind) in [
        (status(429, ""), "status 429"),
        (status(500, ""), "status 500"),
        (status(503, ""), "status 503"),
        (StubResponse::HalfABody, "connection"),
        (StubResponse::Closes, "connection"),
        (StubResponse::Hangs, "timed out"),
    ] {
        let stub = Stub::new(&[bad], StubResponse::Says("right", false));
        let home = tempfile::tempdir().unwrap();
        let mut api = api(settings(&stub, home.path()));
        let played = play(&mut api, 1).unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(played[0].turns[1].text, "right", "{kind}");
        let account = api.account();
        assert_eq!((account.requests, account.retries), (3, 1), "{kind}");
        let failures: Vec<_> = account.failures.into_iter().collect();
        assert_eq!(failures, [(kind.to_owned(), 1)]);
    }
}

#[test]
fn retry_after_is_honoured() {
    let bad = StubResponse::Status(429, "Retry-After: 1\r\n", String::new());
    let stub = Stub::new(&[bad], StubResponse::Says("right", false));
    let home = tempfile::tempdir().unwrap();
    let started = Instant::now();
    play(&mut api(settings(&stub, home.path())), 1).unwrap();
    assert!(started.elapsed() >= Duration::from_secs(1));

    let bad = StubResponse::Status(429, "Retry-After: 3600\r\n", String::new());
    let stub = Stub::new(&[], bad);
    let (error, account) = fails(&stub);
    assert!(error.contains("a pause of 3600 s"), "{error}");
    assert_eq!(account.requests, 1);
}

#[test]
fn what_stays_bad_is_quoted() {
    let body = format!("\u{1b}[2Jno {SECRET} {}", "x".repeat(1000));
    let stub = Stub::new(&[], StubResponse::Status(500, "", body));
    let (error, account) = fails(&stub);
    assert!(
        error.starts_with("the API at URL answered with status 500: \"\\u{1b}[2Jno [key] xxx"),
        "{error}"
    );
    assert!(error.ends_with("xxx\"... (6 attempts)"), "{error}");
    assert!(error.len() < 500);
    assert_eq!((account.requests, account.retries), (6, 5));

    let (error, _) = fails(&Stub::new(&[], StubResponse::Closes));
    assert!(error.contains("gave no answer: "), "{error}");
}

#[test]
fn what_does_not_pass_is_not_tried_again() {
    for (status, cure) in [
        (400, ""),
        (401, "is OPENAI_API_KEY right?"),
        (404, "wanted the address before /chat/completions"),
        (302, "redirects are not followed"),
    ] {
        let headers = "Location: http://127.0.0.1:9/\r\n";
        let stub = Stub::new(&[], StubResponse::Status(status, headers, "no".to_owned()));
        let (error, account) = fails(&stub);
        assert!(error.contains(&format!("status {status}")), "{error}");
        assert!(error.contains(cure), "{error}");
        assert_eq!((account.requests, account.retries), (1, 0), "{status}");
    }
}

#[test]
fn another_schema_is_an_error() {
    for (body, problem) in [
        ("<html>", "expected value"),
        ("{}", "missing field `choices`"),
        ("{\"choices\": []}", "it has no choices"),
        (
            "{\"choices\": [{\"text\": \"right\"}]}",
            "missing field `message`",
        ),
    ] {
        let stub = Stub::new(&[], StubResponse::Status(200, "", body.to_owned()));
        let (error, account) = fails(&stub);
        assert!(error.contains("not a chat completion"), "{error}");
        assert!(error.contains(problem), "{error}");
        assert!(error.contains(&format!("{body:?}")), "{error}");
        assert_eq!(account.requests, 1);
        assert_eq!(account.failures["another schema"], 1);
    }
}

#[test]
fn a_reply_that_was_cut_off_is_known_as_that() {
    let stub = Stub::new(&[], StubResponse::Says("ri", true));
    let home = tempfile::tempdir().unwrap();
    let played = play(&mut api(settings(&stub, home.path())), 1).unwrap();
    assert_eq!(played[0].turns[0].unread, Some(UnreadReason::CutOff));
    assert_eq!(played[0].turns[0].shaping, -1.0);
}

#[test]
fn null_content_and_no_usage_are_an_answer() {
    let body = r#"{"choices":[{"message":{"content":null},"finish_reason":"length"}]}"#;
    let stub = Stub::new(&[], StubResponse::Status(200, "", body.to_owned()));
    let home = tempfile::tempdir().unwrap();
    let mut api = api(settings(&stub, home.path()));
    let played = play(&mut api, 1).unwrap();
    assert_eq!(played[0].turns[0].unread, Some(UnreadReason::CutOff));
    let account = api.account();
    assert_eq!(account.estimated, 2);
    assert!(account.prompt_tokens > 20, "{account}");
}

#[test]
fn absurd_token_counts_do_not_overflow() {
    let body = r#"{"choices":[{"message":{"content":"right"}}],"usage":{"prompt_tokens":9223372036854775808,"completion_tokens":9223372036854775808}}"#;
    let stub = Stub::new(&[], StubResponse::Status(200, "", body.to_owned()));
    let home = tempfile::tempdir().unwrap();
    let mut api = api(ApiSettings {
        budget: Some(250),
        concurrency: 1,
        ..settings(&stub, home.path())
    });
    let error = play(&mut api, 2).unwrap_err().to_string();
    assert!(error.contains("(18446744073709551615 used)"), "{error}");
}

#[test]
fn the_budget_ends_the_run_and_a_larger_one_goes_on() {
    let stub = Stub::new(&[], StubResponse::Says("right", false));
    let home = tempfile::tempdir().unwrap();
    let with = |budget| {
        api(ApiSettings {
            budget,
            concurrency: 1,
            ..settings(&stub, home.path())
        })
    };
    let mut poor = with(Some(250));
    let error = play(&mut poor, 4).unwrap_err().to_string();
    assert!(
        error.starts_with("the budget of 250 tokens is used up (300 used)"),
        "{error}"
    );
    assert_eq!((stub.asked().len(), poor.account().tokens()), (3, 300));
    let mut rich = with(Some(500));
    play(&mut rich, 4).unwrap();
    assert_eq!((rich.account().cached, rich.account().tokens()), (3, 500));
}
