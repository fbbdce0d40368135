//! Tests with child processes.

use super::*;

/// The beginning of all these programs: a reader of requests and a writer of answers.
const BEGINNING: &str = r#"
import json, os, subprocess, sys, time
open("pid", "w").write(str(os.getpid()))
def requests():
    for line in sys.stdin:
        yield json.loads(line)
    open("ended", "w").close()
def write(text):
    sys.stdout.write(text)
    sys.stdout.flush()
def answer(request, observation, reward=None, done=False):
    data = {"observation": observation, "reward": reward, "done": done}
    write(json.dumps({"session": request["session"], "type": "observation", "data": data}) + "\n")
"#;

/// An episode is won by sending "go" as often as the seed demands.
const HONEST: &str = r#"
left = {}
for request in requests():
    session, data = request["session"], request.get("data")
    if request["type"] == "close":
        del left[session]
        continue
    if request["type"] == "reset":
        left[session] = data["seed"]
        answer(request, f"session {session} of {os.getpid()}: {left[session]} left")
        continue
    left[session] -= data["action"]
    over = left[session] == 0
    answer(request, f"session {session} of {os.getpid()}: {left[session]} left", 1 if over else -0.5, over)
"#;

/// Returns a scenario with this program, in a directory of its own.
struct Child {
    home: TempDir,
    scenario: Option<Box<dyn Scenario>>,
}

impl Child {
    fn new(program: &str, options: Value) -> Child {
        let home = tempfile::tempdir().unwrap();
        let chdir = format!("import os\nos.chdir({:?})\n", home.path().to_str().unwrap());
        let file = home.path().join("a game.py");
        fs::write(&file, format!("{chdir}{BEGINNING}{program}")).unwrap();
        let scenario = scenario(&format!("exec:python3 '{}'", file.display()), options);
        Child {
            home,
            scenario: Some(scenario),
        }
    }

    fn scenario(&self) -> &dyn Scenario {
        &**self.scenario.as_ref().unwrap()
    }

    fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.home.path().join(file)).ok()
    }

    /// Checks that the processes whose ids are in these files end with the scenario.
    fn is_gone(&mut self, files: &[&str]) {
        self.scenario = None;
        for file in files {
            let pid: i32 = self.read(file).unwrap().parse().unwrap();
            let pid = rustix::process::Pid::from_raw(pid).unwrap();
            let start = Instant::now();
            // A grandchild is reaped by init, which takes a moment.
            while is_alive(pid) {
                assert!(start.elapsed() < Duration::from_secs(5), "{file} lives");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// Returns whether the process runs. A zombie of ours counts; an orphaned one in a container without init does not.
fn is_alive(pid: rustix::process::Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat", pid = pid.as_raw_nonzero()));
    match stat {
        Ok(stat) => {
            let after = stat.rsplit(')').next().unwrap_or_default();
            let mut fields = after.split_whitespace();
            let (state, parent) = (fields.next(), fields.next());
            state != Some("Z") || parent == Some(&std::process::id().to_string())
        }
        Err(_) if Path::new("/proc/self/stat").exists() => false,
        Err(_) => rustix::process::test_kill_process(pid).is_ok(),
    }
}

#[test]
fn one_child_plays_many_episodes() {
    let mut child = Child::new(HONEST, json!({}));
    let scenario = child.scenario();
    assert!(child.read("pid").is_none(), "started before it is needed");
    let mut games: Vec<Box<dyn Game>> = (1..4).map(|n| scenario.start(n, 0).unwrap()).collect();
    let pid = child.read("pid").unwrap();
    let seen = |game: &dyn Game| game.observe(0).unwrap().replace(&pid, "PID");
    for (game, n) in games.iter().zip(1..) {
        assert_eq!(seen(&**game), format!("session {n} of PID: {n} left"));
    }
    for round in 1..4 {
        for (game, n) in games.iter_mut().zip(1..) {
            let outcome = game.play(&[Some(1)]).unwrap()[0];
            let reward = match n {
                n if n < round => 0.0,
                n if n == round => 1.0,
                _ => -0.5,
            };
            assert_eq!((outcome.reward, outcome.over), (reward, n <= round));
            // A return of 0 or less is not a success by default.
            assert_eq!(game.succeeded(0), n <= round && n < 3);
        }
    }
    // Nothing is sent for an unreadable reply, or after the end.
    drop(games);
    let mut game = scenario.start(2, 0).unwrap();
    let reused = seen(&*game);
    assert!(
        reused.ends_with(" of PID: 2 left") && !reused.contains('4'),
        "{reused}"
    );
    assert_eq!(game.play(&[None]).unwrap()[0].reward, 0.0);
    assert_eq!(seen(&*game), reused);
    let again = scenario.start(2, 9).unwrap();
    assert_eq!(seen(&*again)[10..], reused[10..]);
    drop((game, again));
    child.is_gone(&["pid"]);
    assert!(
        child.read("ended").is_some(),
        "it was not let end by itself"
    );
}

/// Each error quotes the child's output, its processes are gone, and none takes longer than its timeout.
#[test]
fn children_that_hang_flood_die_and_lie_end_with_an_error() {
    let lie = |text: &str| {
        format!(
            "r = requests()\nanswer(next(r), 'hello')\nnext(r)\nwrite({text:?} + '\\n')\ntime.sleep(1000)"
        )
    };
    let data = |data: &str| {
        lie(&format!(
            r#"{{"session":1,"type":"observation","data":{data}}}"#
        ))
    };
    let cases: Vec<(String, &str)> = vec![
        (
            "sys.stderr.write('one\\nno such \\x1b[2Jlevel\\n')\nsys.exit(3)".to_owned(),
            r#"it ended (exit status 3; started in the current directory); its last words on standard error: "one\nno such \u{1b}[2Jlevel""#,
        ),
        (
            "r = requests()\nanswer(next(r), 'hello')\nnext(r)\nraise ValueError('in the middle')".to_owned(),
            "ValueError: in the middle\"",
        ),
        (
            "os.kill(os.getpid(), 9)".to_owned(),
            "it ended (signal 9; started in the current directory)",
        ),
        (
            "os.close(1)\ntime.sleep(1000)".to_owned(),
            "it closed its standard output, and was ended",
        ),
        (
            "sys.stdout.write('[' * (17 << 20))\nsys.stdout.flush()\ntime.sleep(1000)".to_owned(),
            "it wrote a line of more than 16 MiB, which begins with \"[[[",
        ),
        (
            "while True: write('y' * 65536)".to_owned(),
            "it wrote a line of more than 16 MiB",
        ),
        (
            "r = requests()\na = next(r)\nwhile True: answer(a, 'again')".to_owned(),
            "it wrote to its standard output without a request, where only answers belong: \"{\\\"session",
        ),
        ("print('pygame 2.6')\nsys.stdout.flush()\ntime.sleep(1000)".to_owned(), "\"pygame 2.6\""),
        (lie("{}]"), "what it wrote is not JSON (trailing characters at line 1 column 3): \"{}]\""),
        (lie("7"), "its output is not a message, which is a JSON object: \"7\""),
        (lie("{}"), "the message has no `type`: \"{}\""),
        (
            lie(r#"{"session":1,"type":"state","data":{}}"#),
            "the answer is of type \"state\", and not `observation` or `error`: ",
        ),
        (
            lie(r#"{"session":2,"type":"observation","data":{"observation":1,"done":true}}"#),
            "session 1 was asked and session 2 answers: ",
        ),
        (
            lie(r#"{"type":"observation","data":{"observation":1,"done":true}}"#),
            "the answer has no `session`: ",
        ),
        (data(r#"{"done":true}"#), "the observation is wrong (missing field `observation`): "),
        (data(r#"{"observation":1}"#), "the observation is wrong (missing field `done`): "),
        (data(r#"{"observation":1,"done":false,"reward":NaN}"#), "what it wrote is not JSON ("),
        (data(r#"{"observation":1,"done":false,"reward":1e999}"#), "what it wrote is not JSON ("),
        (data(r#"{"observation":1,"done":false,"reward":"1"}"#), "the reward is not a number: "),
        (data(r#"{"observation":1,"done":false,"reward":9}"#), "a reward is 9, outside of -1 to 1"),
        (
            "r = requests()\nnext(r)\nsys.stdout.buffer.write(b'\\xff\\xfe\\n')\nsys.stdout.flush()\ntime.sleep(1000)".to_owned(),
            "what it wrote is not UTF-8: ",
        ),
        (
            "r = requests()\nanswer(next(r), 'hello', done=True)".to_owned(),
            "the episode is over (`done`) before its first step",
        ),
    ];
    for (program, wanted) in cases {
        let start = Instant::now();
        let mut child = Child::new(&program, json!({ "reward_bounds": [-1, 1] }));
        let told = failure(child.scenario());
        assert!(told.contains(wanted), "{program}\n{told}");
        assert!(told.len() < 2000, "{told}");
        child.is_gone(&["pid"]);
        assert!(
            start.elapsed() < Duration::from_secs(15),
            "{program}: {:?}",
            start.elapsed()
        );
    }
}

/// A time limit of the environment is no end by its rules.
#[test]
fn a_truncated_episode_is_not_terminated() {
    let program = r#"
for request in requests():
    if request["type"] == "close":
        continue
    data = {"observation": "here", "reward": 0, "done": False}
    data |= {"truncated": True} if request["type"] == "step" else {}
    write(json.dumps({"session": request["session"], "type": "observation", "data": data}) + "\n")
"#;
    let child = Child::new(program, json!({}));
    let referee = crate::Referee {
        step_limit: 9,
        format_penalty: 0.0,
    };
    let seat = crate::Seat {
        scene: 1,
        luck: 2,
        reply: 3,
    };
    let mut player = crate::players::scripted::RandomPlayer::default();
    let played = referee.play(child.scenario(), &[seat], &mut [&mut player], &mut |_| ());
    let [episode] = &played.unwrap()[..] else {
        panic!("one agent")
    };
    assert!(episode.is_truncated() && episode.turns.len() == 1);
}

/// A child that neither answers nor reads, ignores the signals that it can ignore, and has a child of its own.
#[test]
fn a_child_that_hangs_is_ended_with_its_children() {
    let program = r#"
import signal
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
other = subprocess.Popen(["sleep", "1000"])
open("other", "w").write(str(other.pid))
sys.stderr.write("thinking\n" * 1000)
sys.stderr.flush()
time.sleep(1000)
"#;
    // Long enough for it to have started, which its child shows.
    let mut child = Child::new(program, json!({ "timeout": 3 }));
    let told = failure(child.scenario());
    let wanted = "it did not answer within 3 s, and was ended (game.options.timeout); its last words on standard error: ...\"";
    assert!(
        told.starts_with(wanted) && told.ends_with("thinking\""),
        "{told}"
    );
    child.is_gone(&["pid", "other"]);
}

/// A child that only ends by force is killed when it is no longer needed, too.
#[test]
fn a_child_that_plays_and_does_not_end_is_ended() {
    let program = "r = requests()\nanswer(next(r), 'hello')\nother = subprocess.Popen(['sleep', '1000'])\n\
                   open('other', 'w').write(str(other.pid))\nanswer(next(r), 'hello', 1)\ntime.sleep(1000)";
    let mut child = Child::new(program, json!({}));
    let mut game = child.scenario().start(0, 0).unwrap();
    game.play(&[Some(0)]).unwrap();
    drop(game);
    child.is_gone(&["pid", "other"]);
}

/// An environment's own error ends the episode, and the process continues. A dead process is started again for the next
/// episode.
#[test]
fn other_episodes_go_on() {
    let program = r#"
for request in requests():
    if request["type"] == "close":
        continue
    if request["type"] == "reset" and request["data"]["seed"] == 13:
        write(json.dumps({"session": request["session"], "type": "error", "data": {"message": "unlucky", "code": "X"}}) + "\n")
    elif request["type"] == "step" and request["data"]["action"] == 0:
        sys.exit(7)
    else:
        answer(request, str(os.getpid()))
"#;
    let mut child = Child::new(program, json!({}));
    let scenario = child.scenario();
    let mut first = scenario.start(1, 0).unwrap();
    let error = scenario.start(13, 0).map(drop).unwrap_err();
    assert_eq!(
        told(&error),
        "the environment reports an error (X): \"unlucky\""
    );
    let mut second = scenario.start(2, 0).unwrap();
    for game in [&mut first, &mut second] {
        game.play(&[Some(1)]).unwrap();
        assert_eq!(Some(game.observe(0).unwrap()), child.read("pid"));
    }
    let gone = first.play(&[Some(0)]).unwrap_err();
    assert!(told(&gone).contains("exit status 7"));
    assert_eq!(second.play(&[Some(1)]).unwrap_err(), gone);
    drop((first, second));
    let old = child.read("pid");
    let third = scenario.start(3, 0).unwrap();
    assert_eq!(Some(third.observe(0).unwrap()), child.read("pid"));
    assert_ne!(child.read("pid"), old);
    drop(third);
    child.is_gone(&["pid"]);
}

#[test]
fn a_program_that_is_not_there_or_not_one_is_told() {
    let home = tempfile::tempdir().unwrap();
    let plain = home.path().join("plain");
    fs::write(&plain, "hello").unwrap();
    let told = failure(&*scenario("exec:no-such-program-3 a", json!({})));
    assert_eq!(
        told,
        "cannot start \"no-such-program-3\": there is no such program here or on the PATH"
    );
    let told = failure(&*scenario(
        &format!("exec:'{}'", plain.display()),
        json!({}),
    ));
    assert!(
        told.contains("if it is a script, name its interpreter first"),
        "{told}"
    );
}

/// The agent's text goes to the template, and the template's output to the child, with a seed for luck if the option is
/// set.
#[test]
fn texts_and_luck_are_handed_on() {
    let program = r#"
for request in requests():
    if request["type"] != "close":
        answer(request, {"got": request["data"]}, None if request["type"] == "reset" else 0.25)
"#;
    let home = tempfile::tempdir().unwrap();
    let template = home.path().join("a.jinja");
    let text = "{% block rules %}Talk.{% endblock %}
{% block observation %}{{ observation.got | tojson }} {{ reward }} {{ step }}{% endblock %}
{% block action %}{\"message\": {{ text | tojson }}}{% endblock %}";
    fs::write(&template, text).unwrap();
    let options = json!({
        "template": template.to_str().unwrap(),
        "actions": null,
        "luck": "luck",
        "success": "return >= 0.5 and step == 2",
    });
    let mut options = options;
    options.as_object_mut().unwrap().remove("actions");
    let mut child = Child::new(program, json!({}));
    let name = child.scenario().name().to_owned();
    let talk = configured(&name, &options).unwrap();
    assert!(talk.takes_text());
    assert_eq!(
        (talk.actions(), &*talk.rules()),
        (&["say".to_owned()][..], "Talk.")
    );
    let mut game = talk.start(4, 5).unwrap();
    assert_eq!(game.observe(0).unwrap(), r#"{"seed":4,"luck":5} None 0"#);
    game.hear(0, "I say \"left\"");
    game.play(&[Some(0)]).unwrap();
    assert_eq!(
        game.observe(0).unwrap(),
        r#"{"message":"I say \"left\""} 0.25 1"#
    );
    assert!(!game.succeeded(0));
    // A text is sent once.
    game.play(&[Some(0)]).unwrap();
    assert_eq!(game.observe(0).unwrap(), r#"{"message":""} 0.25 2"#);
    assert!(game.succeeded(0));
    // The options hold the template itself.
    fs::remove_file(template).unwrap();
    let again = configured(&name, &talk.options()).unwrap();
    assert_eq!(again.options(), talk.options());
    drop((game, talk, again));
    child.is_gone(&["pid"]);
}
