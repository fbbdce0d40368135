//! Reading a reply: the parser of the paper, and why it could not read what it could not.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The form of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// The action word and nothing else.
    Word,
    /// Any thoughts, then `<action>word</action>`.
    Tags,
    /// `<think>thoughts</think>`, then `<action>word</action>`.
    Think,
    /// `<plan>plan</plan>`, then `<action>word</action>`.
    Plan,
    /// `{"action": "word"}`, whatever else is in the object.
    Json,
}

impl Form {
    /// What is wanted, for messages.
    pub fn wanted(self) -> &'static str {
        match self {
            Form::Word => "one word, which is an action (policy.reply = \"word\")",
            Form::Tags => "<action>...</action> with an action in it (policy.reply = \"tags\")",
            Form::Think => {
                "<think>...</think> and <action>...</action> with an action in it (policy.reply = \"think\")"
            }
            Form::Plan => {
                "<plan>...</plan> and <action>...</action> with an action in it (policy.reply = \"plan\")"
            }
            Form::Json => "a JSON object with an action under \"action\" (policy.reply = \"json\")",
        }
    }
}

impl Form {
    /// An action, said in this form and with nothing else.
    pub fn say(self, action: &str) -> String {
        let tags = format!("<action>{action}</action>");
        match self {
            Form::Word => action.to_owned(),
            Form::Tags => tags,
            Form::Think => format!("<think></think>{tags}"),
            Form::Plan => format!("<plan></plan>{tags}"),
            Form::Json => serde_json::json!({ "action": action }).to_string(),
        }
    }
}

/// Why a reply could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unread {
    /// There is no action where it was asked for: no tag, no JSON object with an action, nothing at all.
    NoTag,
    /// What is there is none of the actions.
    UnknownWord,
    /// What is there names several actions.
    SeveralActions,
    /// The limit of tokens came before the action did.
    CutOff,
}

impl Unread {
    /// For people.
    pub fn in_words(self) -> &'static str {
        match self {
            Unread::NoTag => "there is no action where it was asked for",
            Unread::UnknownWord => "it names none of the actions",
            Unread::SeveralActions => "it names several actions",
            Unread::CutOff => "it was cut off before the action",
        }
    }
}

/// What a reply has where the action is asked for, without the space around it. `cut`: the limit of tokens ended the
/// reply, and not the model.
///
/// A word is the whole reply; tags are the text between the first `<action>` and the `</action>` after it, thoughts and
/// plans in tags left out; JSON is the text under "action" in the first object.
///
/// # Errors
/// If there is nothing.
pub fn said(reply: &str, form: Form, cut: bool) -> Result<String, Unread> {
    let said = match form {
        Form::Word => Some(reply.to_owned()),
        Form::Tags => tagged(reply),
        Form::Think => tagged(after(reply, "</think>")),
        Form::Plan => tagged(after(reply, "</plan>")),
        Form::Json => under_action(reply),
    };
    let said = said.map(|said| said.trim().to_owned());
    said.filter(|said| !said.is_empty())
        .ok_or(if cut { Unread::CutOff } else { Unread::NoTag })
}

/// The action that a reply names, as a place in `actions`. Case and the space around the word do not count.
///
/// # Errors
/// If it names none, or several.
pub fn action(reply: &str, form: Form, actions: &[String], cut: bool) -> Result<usize, Unread> {
    let said = said(reply, form, cut)?.to_lowercase();
    if let Some(action) = actions.iter().position(|action| *action == said) {
        return Ok(action);
    }
    let named = actions.iter().filter(|action| names(&said, action)).count();
    Err(match form {
        _ if named > 1 => Unread::SeveralActions,
        Form::Word if cut && actions.iter().any(|action| action.starts_with(&said)) => {
            Unread::CutOff
        }
        _ => Unread::UnknownWord,
    })
}

fn after<'a>(reply: &'a str, tag: &str) -> &'a str {
    reply.split_once(tag).map_or(reply, |(_, rest)| rest)
}

fn tagged(reply: &str) -> Option<String> {
    let (_, rest) = reply.split_once("<action>")?;
    Some(rest.split_once("</action>")?.0.to_owned())
}

fn under_action(reply: &str) -> Option<String> {
    let object = &reply[reply.find('{')?..];
    let mut values = serde_json::Deserializer::from_str(object).into_iter::<Value>();
    let object = values.next()?.ok()?;
    Some(object.get("action")?.as_str()?.to_owned())
}

/// Whether the action stands in the text as a word of its own.
fn names(text: &str, action: &str) -> bool {
    let apart = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    text.match_indices(action).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        apart(before) && apart(text[at + action.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMS: [Form; 5] = [Form::Word, Form::Tags, Form::Think, Form::Plan, Form::Json];

    fn read(reply: &str, form: Form) -> Result<usize, Unread> {
        action(reply, form, &["left".to_owned(), "down".to_owned()], false)
    }

    /// In every form, as a model that does as it is told would say it.
    #[test]
    fn every_action_of_every_game_is_read_back() {
        for kind in lapwing_env::GAMES {
            let scenario = (kind.configure)(&serde_json::json!({})).unwrap();
            let actions = scenario.actions();
            for (i, word) in actions.iter().enumerate() {
                for form in FORMS {
                    let tags = format!("<action>{word}</action>");
                    let reply = match form {
                        Form::Word => word.clone(),
                        Form::Tags => format!("I think so. {tags}"),
                        Form::Think => format!("<think>Not <action>.</think>{tags}"),
                        Form::Plan => format!("<plan>Go.</plan>\n{tags}"),
                        Form::Json => {
                            serde_json::json!({ "why": "so", "action": word }).to_string()
                        }
                    };
                    let read = action(&reply, form, actions, false);
                    assert_eq!(read, Ok(i), "{}: {reply}", kind.name);
                    let plain = form.say(word);
                    let read = action(&plain, form, actions, false);
                    assert_eq!(read, Ok(i), "{}: {plain}", kind.name);
                }
            }
        }
    }

    #[test]
    fn a_word_is_the_whole_reply() {
        assert_eq!(read("left", Form::Word), Ok(0));
        assert_eq!(read(" Left\n", Form::Word), Ok(0));
        assert_eq!(read("left.", Form::Word), Err(Unread::UnknownWord));
        assert_eq!(read("go left", Form::Word), Err(Unread::UnknownWord));
        assert_eq!(read("", Form::Word), Err(Unread::NoTag));
        assert_eq!(read("left down", Form::Word), Err(Unread::SeveralActions));
        assert_eq!(read("leftdown", Form::Word), Err(Unread::UnknownWord));
    }

    #[test]
    fn tags_are_read_from_the_first_pair() {
        let read = |reply| read(reply, Form::Tags);
        assert_eq!(read("so <action>down</action>"), Ok(1));
        assert_eq!(read("<action> DOWN </action><action>left</action>"), Ok(1));
        assert_eq!(read("<action>down"), Err(Unread::NoTag));
        assert_eq!(read("</action>down<action>"), Err(Unread::NoTag));
        assert_eq!(read("<action></action>"), Err(Unread::NoTag));
        assert_eq!(read("down"), Err(Unread::NoTag));
        assert_eq!(read("<action>jump</action>"), Err(Unread::UnknownWord));
        assert_eq!(
            read("<action>down, left</action>"),
            Err(Unread::SeveralActions)
        );
    }

    #[test]
    fn thoughts_are_no_actions() {
        let reply = "<think><action>left</action> would fall</think><action>down</action>";
        assert_eq!(read(reply, Form::Think), Ok(1));
        assert_eq!(read(reply, Form::Tags), Ok(0));
        assert_eq!(
            read("<action>down</action>", Form::Think),
            Ok(1),
            "not asked to think"
        );
    }

    #[test]
    fn json_may_hold_more_than_the_action() {
        let read = |reply| read(reply, Form::Json);
        assert_eq!(
            read("```json\n{\"why\": {}, \"action\": \"left\"}\n```"),
            Ok(0)
        );
        assert_eq!(read("{\"action\": 1}"), Err(Unread::NoTag));
        assert_eq!(read("{\"action\": \"left\""), Err(Unread::NoTag));
        assert_eq!(read("left"), Err(Unread::NoTag));
    }

    #[test]
    fn a_reply_that_was_cut_off_is_told_from_one_that_has_no_action() {
        let cut = |reply, form| action(reply, form, &["left".to_owned()], true);
        assert_eq!(cut("I think that", Form::Tags), Err(Unread::CutOff));
        assert_eq!(cut("{\"action\": \"le", Form::Json), Err(Unread::CutOff));
        assert_eq!(cut("le", Form::Word), Err(Unread::CutOff));
        // A model that says another word is not helped by more tokens.
        assert_eq!(cut("jump", Form::Word), Err(Unread::UnknownWord));
        assert_eq!(
            cut("<action>jump</action>", Form::Tags),
            Err(Unread::UnknownWord)
        );
    }

    #[test]
    fn free_text_is_what_stands_where_the_action_would() {
        assert_eq!(
            said(" [up] now\n", Form::Word, false),
            Ok("[up] now".to_owned())
        );
        assert_eq!(
            said("So: <action>[up]</action>", Form::Tags, false),
            Ok("[up]".to_owned())
        );
        assert_eq!(said(" ", Form::Word, false), Err(Unread::NoTag));
    }
}
