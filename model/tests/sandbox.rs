//! Untrusted tokenizers and chat templates in sandboxed processes: whatever they do, this process survives.

#[allow(dead_code)]
mod support;

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use lapwing_model::{ChatTemplate, Message, ModelConfig, ModelError, TextFiles};
use serde_json::{Value, json};

use support::{CHECKPOINTS, GoldenCopy, golden};

fn main() {
    lapwing_model::run_sandbox_if_requested();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [what, dir] if what == "spin" => return spin(Path::new(dir)),
        [what, dir] if what == "read" => return read(Path::new(dir)),
        _ => (),
    }
    macro_rules! tests {
        ($($name:ident)*) => { [$((stringify!($name), $name as fn())),*] };
    }
    let tests = tests![
        the_sandbox_returns_the_results_of_this_process
        a_template_cannot_take_memory_or_stack
        a_template_may_be_as_deep_as_it_is_long
        a_template_cannot_take_time_even_if_it_ended_once
        a_cyclic_namespace_ends_its_process_only
        a_tokenizer_cannot_take_memory
        an_ended_sandbox_stays_ended_and_errors_do_not_end_it
        a_killed_sandbox_is_started_again_once
        a_process_ends_with_its_owner
        a_process_ends_with_a_parent_that_is_killed
        little_address_space_is_enough_or_an_error
    ];
    // As in the usual harness, an argument selects tests by a part of their name.
    let chosen = |name: &str| match arguments.iter().find(|a| !a.starts_with('-')) {
        Some(part) => name.contains(part.as_str()),
        None => true,
    };
    // Two at a time: some wait for a time limit.
    let queue = Mutex::new(tests.into_iter().filter(|(name, _)| chosen(name)));
    let next = || queue.lock().unwrap().next();
    let work = || {
        while let Some((name, test)) = next() {
            let start = Instant::now();
            test();
            println!("test sandbox::{name} ... ok ({:.1?})", start.elapsed());
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
}

fn template(source: &str) -> Result<ChatTemplate, ModelError> {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("chat_template.jinja"), source).unwrap();
    TextFiles::untrusted(home.path()).unwrap().template()
}

fn render(source: &str) -> Result<String, String> {
    let rendered = template(source).and_then(|t| t.render(&[Message::new("user", "hello")], true));
    rendered.map_err(|e| e.to_string())
}

/// Returns the peak memory of this process in bytes, on Linux only.
fn most_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}

/// Fails if this process takes 64 MiB more than its peak so far, for each of the two tests that run at a time.
fn within_memory<T>(work: impl FnOnce() -> T) -> T {
    let before = most_memory();
    let done = work();
    if let (Some(before), Some(after)) = (before, most_memory()) {
        assert!(
            after - before < 2 * (64 << 20),
            "{} MiB",
            (after - before) >> 20
        );
    }
    done
}

/// Returns the sandboxes of this directory.
#[cfg(target_os = "linux")]
fn processes(dir: &Path) -> Vec<u32> {
    let of = |id: &u32| {
        let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        words.nth(1) == Some(b"--lapwing-text-of")
            && words.next() == Some(dir.to_str().unwrap().as_bytes())
    };
    let entries = fs::read_dir("/proc").unwrap();
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.filter(of).collect()
}

fn the_sandbox_returns_the_results_of_this_process() {
    for name in CHECKPOINTS {
        let dir = golden(name);
        let config = ModelConfig::read(&dir).unwrap();
        let there = TextFiles::untrusted(&dir).unwrap();
        let (tokenizer, template) = (there.tokenizer(&config).unwrap(), there.template().unwrap());
        let here = TextFiles::trusted(&dir).tokenizer(&config).unwrap();
        assert_eq!(tokenizer.stop_ids(), here.stop_ids());
        let cases = fs::read_to_string(dir.join("chat.json")).unwrap();
        for case in serde_json::from_str::<Vec<Value>>(&cases).unwrap() {
            let messages = case["messages"].as_array().unwrap();
            let text = template.render(messages, true).unwrap();
            assert_eq!(text, case["text"], "{name}");
            let ids = tokenizer.encode(&text).unwrap();
            assert_eq!(json!(ids), case["ids"], "{name}");
            assert_eq!(
                tokenizer.encode_plain("go").unwrap(),
                here.encode_plain("go").unwrap()
            );
            assert_eq!(tokenizer.decode(&ids).unwrap(), here.decode(&ids).unwrap());
            let token = here.token(ids[0]).unwrap().unwrap();
            assert_eq!(tokenizer.token(ids[0]).unwrap().as_ref(), Some(&token));
        }
        let text = "go left or right\n".repeat(100);
        for (place, tokenizer) in [("here", &here), ("there", &tokenizer)] {
            let start = Instant::now();
            (0..100).for_each(|_| drop(tokenizer.encode(&text).unwrap()));
            println!(
                "  {place}: {:.1?} for a text of {} bytes",
                start.elapsed() / 100,
                text.len()
            );
        }
        assert_eq!(tokenizer.token(u32::MAX).unwrap(), None);
    }
    // Error messages are equal, too.
    let copy = GoldenCopy::of("qwen2");
    let config = ModelConfig::read(copy.0.path()).unwrap();
    let same = |wanted: &str| {
        let there = TextFiles::untrusted(copy.0.path()).unwrap();
        let (a, b) = (
            TextFiles::trusted(copy.0.path()).tokenizer(&config),
            there.tokenizer(&config),
        );
        let (a, b) = (
            a.err().map(|e| e.to_string()),
            b.err().map(|e| e.to_string()),
        );
        assert_eq!(a, b);
        assert!(a.unwrap().contains(wanted));
    };
    fs::write(copy.path("tokenizer.json"), "{}").unwrap();
    same("tokenizer.json: not a tokenizer");
    fs::remove_file(copy.path("tokenizer.json")).unwrap();
    same("tokenizer.json: cannot be read: No such file");
    fs::copy(
        golden("qwen2").join("tokenizer.json"),
        copy.path("tokenizer.json"),
    )
    .unwrap();
    let copy = copy.edit("tokenizer_config.json", |config| {
        config["eos_token"] = json!("gone")
    });
    let there = TextFiles::untrusted(copy.0.path()).unwrap();
    let error = there.tokenizer(&config).unwrap_err().to_string();
    let wanted = "tokenizer_config.json: eos_token: \"gone\" is not in tokenizer.json";
    assert!(error.ends_with(wanted), "{error}");
}

/// A list in forty brackets, sixty thousand times: without a cycle, and too deep for any stack.
fn deep(use_of_it: &str) -> String {
    let (open, close) = ("[".repeat(40), "]".repeat(40));
    format!(
        "{{% set ns = namespace(x=[]) %}}{{% for i in range(60000) %}}\
         {{% set ns.x = {open}ns.x{close} %}}{{% endfor %}}{use_of_it}"
    )
}

fn a_template_cannot_take_memory_or_stack() {
    let doubled = "{% set ns = namespace(s='x'*1000000) %}{% for i in range(30) %}\
                   {% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s|length }}";
    let brackets = format!("{{{{ {}1{} }}}}", "[".repeat(30_000), "]".repeat(30_000));
    let cases = [
        (
            "{% for i in range(60) %}{{ 'x'*1000000 }}{% endfor %}",
            "the text is longer than 4 MiB",
        ),
        (doubled, "it takes too much memory (it may have 2048 MiB)"),
        (&deep("{{ ns.x }}"), "it nests too deeply"),
        (&deep("{{ ns.x|tojson }}"), "it nests too deeply"),
        (&deep(""), "it nests too deeply"),
        (&brackets, "chat template: "),
    ];
    for (source, wanted) in cases {
        let start = Instant::now();
        let error = within_memory(|| render(source)).unwrap_err();
        assert!(
            error.contains("chat_template.jinja: chat template: ")
                || error.contains("chat template: it"),
            "{error}"
        );
        assert!(error.contains(wanted), "{error}");
        println!(
            "  {:.2?}: {}",
            start.elapsed(),
            error.rsplit('/').next().unwrap()
        );
    }
}

/// The parser limits some ways to nest and not others. None may end more than its own process.
fn a_template_may_be_as_deep_as_it_is_long() {
    for (before, again, after) in [
        ("{{ ", "-", "1 }}"),
        ("{{ ", "not ", "1 }}"),
        ("{{ ", "(", "1 }}"),
        ("{{ 1", " if 1 else 1", " }}"),
        ("{{ 1", "+1", " }}"),
        ("{{ a", ".b", " }}"),
        ("{{ a", "|trim", " }}"),
        ("{{ a", "[0]", " }}"),
        ("{{ 1", "~1", " }}"),
        ("{{ 1", "**1", " }}"),
        ("{{ ", "[", "1 }}"),
        ("", "{% if 1 %}a{% elif 1 %}", "{% endif %}"),
        ("", "{% if 1 %}", ""),
        ("", "{% for a in b %}", ""),
        ("", "{% set a %}", ""),
    ] {
        let room = (64 << 10) - before.len() - after.len();
        let source = format!("{before}{}{after}", again.repeat(room / again.len()));
        if let Err(error) = within_memory(|| render(&source)) {
            assert!(error.contains("chat template: "), "{error}");
        }
    }
}

fn a_template_cannot_take_time_even_if_it_ended_once() {
    let source = "{% if messages[0].content == 'later' %}{% set s = 'x' * 9999999 %}\
                  {% for i in range(9999) %}{% for j in range(9) %}{% if s|upper|length %}{% endif %}\
                  {% endfor %}{% endfor %}{% endif %}done";
    let template = template(source).unwrap();
    let render = |text| {
        template
            .render(&[Message::new("user", text)], true)
            .map_err(|e| e.to_string())
    };
    assert_eq!(render("now").unwrap(), "done");
    let start = Instant::now();
    let error = within_memory(|| render("later")).unwrap_err();
    assert!(
        error.ends_with("it does not come to an end (stopped after 10 s)"),
        "{error}"
    );
    assert!(
        start.elapsed() < Duration::from_secs(59),
        "{:?}",
        start.elapsed()
    );
}

fn a_cyclic_namespace_ends_its_process_only() {
    let uses = [
        "{{ ns }}",
        "{{ ns ~ '' }}",
        "{{ ns == ns }}",
        "{{ ns != ns }}",
        "{{ ns < ns }}",
        "{{ [ns] == [ns] }}",
        "{{ ns in [ns] }}",
        "{{ ns|tojson }}",
        "{{ ns|string }}",
        "{{ ns|list }}",
        "{{ ns|length }}",
        "{{ ns|items|list }}",
        "{{ ns|dictsort }}",
        "{{ ns|pprint }}",
        "{{ ns|upper }}",
        "{{ ns|trim }}",
        "{{ ns|escape }}",
        "{{ ns|safe }}",
        "{{ ns|urlencode }}",
        "{{ ns|replace('a', 'b') }}",
        "{{ [ns]|join(',') }}",
        "{{ [ns, ns]|unique|list }}",
        "{{ [ns, ns]|sort }}",
        "{{ [ns]|map('string')|list }}",
        "{{ [ns]|min }}",
        "{{ [ns, ns]|max }}",
        "{{ ns|default(1) }}",
        "{{ [ns]|select('eq', ns)|list }}",
        "{{ {'a': ns} }}",
        "{{ debug() }}",
        "{{ '%s'|format(ns) }}",
        "{{ raise_exception(ns) }}",
        "{% for k in ns %}{{ k }}{% endfor %}",
    ];
    let mut ended = 0;
    for use_of_it in uses {
        let source = format!("{{% set ns = namespace() %}}{{% set ns.me = ns %}}{use_of_it}");
        if let Err(error) = within_memory(|| render(&source)) {
            assert!(
                error.contains("chat_template.jinja: chat template: "),
                "{error}"
            );
            ended += usize::from(error.contains("nests too deeply"));
        }
    }
    println!("  {ended} of {} uses end the process", uses.len());
    assert!(
        ended >= 10,
        "{ended}: none of this would have shown anything"
    );
}

fn a_tokenizer_cannot_take_memory() {
    let doubles = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"});
    let twenty = json!(vec![doubles; 20]);
    let copy = GoldenCopy::of("qwen2").edit("tokenizer.json", |tokenizer| {
        tokenizer["normalizer"] = json!({"type": "Sequence", "normalizers": twenty});
    });
    let config = ModelConfig::read(copy.0.path()).unwrap();
    let read = || {
        TextFiles::untrusted(copy.0.path())
            .unwrap()
            .tokenizer(&config)
            .unwrap()
    };
    let tokenizer = read();
    assert!(!tokenizer.encode("go left").unwrap().is_empty());
    let start = Instant::now();
    let error = within_memory(|| tokenizer.encode(&"a".repeat(10_000)))
        .unwrap_err()
        .to_string();
    println!(
        "  {:.2?}: {}",
        start.elapsed(),
        error.rsplit('/').next().unwrap()
    );
    let ends = [
        "the tokenizer takes too much memory (it may have 2048 MiB)",
        "(stopped after 10 s)",
    ];
    assert!(ends.iter().any(|end| error.ends_with(end)), "{error}");
    assert!(error.contains("tokenizer.json: "), "{error}");
    let error = read()
        .encode(&"x".repeat((4 << 20) + 1))
        .unwrap_err()
        .to_string();
    assert!(error.ends_with("at most 4 MiB"), "{error}");

    let copy = copy.edit("tokenizer.json", |tokenizer| {
        tokenizer["normalizer"] = json!(null);
        tokenizer["decoder"] = json!({"type": "Sequence", "decoders": vec![doubles_decoder(); 40]});
    });
    let tokenizer = TextFiles::untrusted(copy.0.path())
        .unwrap()
        .tokenizer(&config)
        .unwrap();
    let ids = tokenizer.encode("aaaa").unwrap();
    let error = within_memory(|| tokenizer.decode(&ids))
        .unwrap_err()
        .to_string();
    assert!(ends.iter().any(|end| error.ends_with(end)), "{error}");
}

fn doubles_decoder() -> Value {
    json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})
}

fn an_ended_sandbox_stays_ended_and_errors_do_not_end_it() {
    let source = "{% if messages[0].content == 'no' %}{{ raise_exception('no') }}{% endif %}\
                  {% if messages[0].content == 'end' %}{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}{% endif %}ok";
    let template = template(source).unwrap();
    let render = |text| {
        template
            .render(&[Message::new("user", text)], true)
            .map_err(|e| e.to_string())
    };
    assert!(render("no").unwrap_err().ends_with("invalid operation: no"));
    assert_eq!(render("yes").unwrap(), "ok");
    let error = render("end").unwrap_err();
    assert!(
        error.ends_with("chat_template.jinja: chat template: it nests too deeply"),
        "{error}"
    );
    let start = Instant::now();
    assert_eq!(render("yes").unwrap_err(), error);
    assert!(
        start.elapsed() < Duration::from_millis(50),
        "{:?}",
        start.elapsed()
    );
    // A panic of the library does not end the process either.
    let copy = GoldenCopy::of("qwen2").edit("tokenizer.json", |tokenizer| {
        tokenizer["normalizer"] =
            json!({"type": "Replace", "pattern": {"String": ""}, "content": "x"});
    });
    let config = ModelConfig::read(copy.0.path()).unwrap();
    let there = TextFiles::untrusted(copy.0.path()).unwrap();
    let read = there.tokenizer(&config).and_then(|t| t.encode("hello"));
    let error = read.unwrap_err().to_string();
    assert!(error.contains("tokenizer.json: "), "{error}");
    assert!(there.template().is_ok());
}

/// Kills the sandboxes of this directory, as Linux does if memory is short; returns their number.
#[cfg(target_os = "linux")]
fn kill(dir: &Path) -> usize {
    let started = processes(dir);
    for id in &started {
        let mut kill = std::process::Command::new("kill");
        kill.args(["-9", &id.to_string()]).status().unwrap();
    }
    started.len()
}

#[cfg(target_os = "linux")]
fn a_killed_sandbox_is_started_again_once() {
    let copy = GoldenCopy::of("qwen2");
    let dir = copy.0.path();
    let config = ModelConfig::read(dir).unwrap();
    let there = TextFiles::untrusted(dir).unwrap();
    let (tokenizer, template) = (there.tokenizer(&config).unwrap(), there.template().unwrap());
    let both = || {
        let text = template.render(&[Message::new("user", "hello")], true)?;
        tokenizer.encode(&text)
    };
    let before = both().unwrap();
    assert_eq!(kill(dir), 1);
    assert_eq!(both().unwrap(), before);
    assert_eq!(kill(dir), 1);
    assert_eq!(
        tokenizer.decode(&[1]).unwrap(),
        TextFiles::trusted(dir)
            .tokenizer(&config)
            .unwrap()
            .decode(&[1])
            .unwrap()
    );
    // Killed during the request, and again during its repetition.
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    fs::write(dir.join("chat_template.jinja"), ENDLESS).unwrap();
    let template = TextFiles::untrusted(dir).unwrap().template().unwrap();
    let error = std::thread::scope(|scope| {
        let rendered = scope.spawn(|| template.render(&[Message::new("user", "later")], true));
        while !rendered.is_finished() {
            kill(dir);
            std::thread::sleep(Duration::from_millis(20));
        }
        rendered.join().unwrap().unwrap_err().to_string()
    });
    let (place, problem) = error.split_once(": ").unwrap();
    assert_eq!(place, dir.to_str().unwrap());
    let wanted = "the system killed the sandbox for its tokenizer and template twice (signal: 9 (SIGKILL)), probably because \
                  memory is short: ";
    assert!(problem.starts_with(wanted), "{problem}");
}

#[cfg(not(target_os = "linux"))]
fn a_killed_sandbox_is_started_again_once() {}

#[cfg(target_os = "linux")]
fn a_process_ends_with_its_owner() {
    let copy = GoldenCopy::of("qwen2");
    let there = TextFiles::untrusted(copy.0.path()).unwrap();
    let template = there.template().unwrap();
    let started = processes(copy.0.path());
    assert_eq!(started.len(), 1, "one for both: {started:?}");
    // Ctrl-C in the terminal must not reach the sandbox.
    let group = |id: &str| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
        stat.rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .nth(2)
            .unwrap()
            .to_owned()
    };
    assert_ne!(group(&started[0].to_string()), group("self"));
    drop(there);
    assert_eq!(processes(copy.0.path()), started, "it is still in use");
    drop(template);
    assert_eq!(processes(copy.0.path()), [0; 0]);
}

#[cfg(not(target_os = "linux"))]
fn a_process_ends_with_its_owner() {}

/// Takes a minute.
#[cfg(target_os = "linux")]
const ENDLESS: &str = "{% set s = 'x' * 9999999 %}{% for i in range(9999) %}{% for j in range(9) %}\
                       {% if s|upper|length %}{% endif %}{% endfor %}{% endfor %}";

/// Renders a template that takes a minute.
fn spin(dir: &Path) {
    let template = TextFiles::untrusted(dir).unwrap().template().unwrap();
    let _ = template.render(&[Message::new("user", "later")], true);
}

#[cfg(target_os = "linux")]
fn a_process_ends_with_a_parent_that_is_killed() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("chat_template.jinja"), ENDLESS).unwrap();
    let mut parent = std::process::Command::new("/proc/self/exe")
        .arg("spin")
        .arg(home.path())
        .spawn()
        .unwrap();
    let wait_for = |count: usize| {
        let start = Instant::now();
        while processes(home.path()).len() != count {
            assert!(start.elapsed() < Duration::from_secs(10), "not {count}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait_for(1);
    // Rendering has begun.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(parent.try_wait().unwrap(), None);
    parent.kill().unwrap();
    parent.wait().unwrap();
    wait_for(0);
}

#[cfg(not(target_os = "linux"))]
fn a_process_ends_with_a_parent_that_is_killed() {}

/// Reads, renders and encodes, or prints the error.
fn read(dir: &Path) {
    let config = ModelConfig::read(dir).unwrap();
    let ids = TextFiles::untrusted(dir).and_then(|there| {
        let tokenizer = there.tokenizer(&config)?;
        let text = there
            .template()?
            .render(&[Message::new("user", "hello")], true)?;
        tokenizer.encode(&text)
    });
    match ids {
        Ok(ids) => println!("{ids:?}"),
        Err(error) => println!("error: {error}"),
    }
}

#[cfg(target_os = "linux")]
fn little_address_space_is_enough_or_an_error() {
    let dir = golden("qwen2");
    let read_within = |kib: usize| {
        let output = std::process::Command::new("sh")
            .args(["-c", &format!("ulimit -v {kib}; exec \"$0\" read \"$1\"")])
            .arg(std::env::current_exe().unwrap())
            .arg(&dir)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        (
            output.status.code(),
            said,
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, said, told) = read_within(300 << 10);
    assert_eq!(code, Some(0), "{told}");
    assert!(said.starts_with('['), "300 MiB are enough: {said}");
    // Below a certain size no program starts. Above it, too little memory must be an error, never a panic.
    let mut errors = 0;
    for mib in [120, 100, 90, 80, 70, 60, 50, 40, 30, 25] {
        let (code, said, told) = read_within(mib << 10);
        assert!(!told.contains("panicked"), "{mib} MiB: {told}");
        errors += usize::from(code == Some(0) && said.starts_with("error: "));
    }
    println!("  an error at {errors} of 10 sizes");
    assert!(
        errors > 0,
        "no size was too small for the tokenizer and enough to start"
    );
}

#[cfg(not(target_os = "linux"))]
fn little_address_space_is_enough_or_an_error() {}
