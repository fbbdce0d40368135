//! The parser of replies, and its reasons for unreadable ones.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The form of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplyForm {
    /// Only the action word.
    Word,
    /// Any text, then `<action>word</action>`.
    Tags,
    /// `<think>thoughts</think>`, then `<action>word</action>`.
    Think,
    /// `<plan>plan</plan>`, then `<action>word</action>`.
    Plan,
    /// `{"action": "word"}`, with any other keys.
    Json,
}

impl ReplyForm {
    /// Returns the expected form, for messages.
    pub fn wanted(self) -> &'static str {
        match self {
            ReplyForm::Word => "one word, which is an action (policy.reply = \"word\")",
            ReplyForm::Tags => {
                "<action>...</action> with an action in it (policy.reply = \"tags\")"
            }
            ReplyForm::Think => {
                "<think>...</think> and <action>...</action> with an action in it (policy.reply = \"think\")"
            }
            ReplyForm::Plan => {
                "<plan>...</plan> and <action>...</action> with an action in it (policy.reply = \"plan\")"
            }
            ReplyForm::Json => {
                "a JSON object with an action under \"action\" (policy.reply = \"json\")"
            }
        }
    }

    /// Returns a reply in this form that has only this action.
    pub fn say(self, action: &str) -> String {
        let tags = format!("<action>{action}</action>");
        match self {
            ReplyForm::Word => action.to_owned(),
            ReplyForm::Tags => tags,
            ReplyForm::Think => format!("<think></think>{tags}"),
            ReplyForm::Plan => format!("<plan></plan>{tags}"),
            ReplyForm::Json => serde_json::json!({ "action": action }).to_string(),
        }
    }
}

/// Why a reply was unreadable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnreadReason {
    /// There is no action in the required place: no tag, no JSON object with an action, nothing at all.
    NoTag,
    /// The word is not an action.
    UnknownWord,
    /// The text names several actions.
    SeveralActions,
    /// The token limit cut the reply off before the action.
    CutOff,
}

impl UnreadReason {
    /// Returns the text for messages.
    pub fn in_words(self) -> &'static str {
        match self {
            UnreadReason::NoTag => "there is no action where it was asked for",
            UnreadReason::UnknownWord => "it names none of the actions",
            UnreadReason::SeveralActions => "it names several actions",
            UnreadReason::CutOff => "it was cut off before the action",
        }
    }
}

/// Returns the text in the place of the action, trimmed. `cut`: the token limit ended the reply.
///
/// In the form `word` this is the whole reply. In the forms with tags it is the text between the first `<action>` and
/// the next `</action>`, not counting those within thoughts and plans. In `json` it is the text under "action" in the
/// first object.
///
/// # Errors
/// If there is no such text.
pub(crate) fn said(reply: &str, form: ReplyForm, cut: bool) -> Result<String, UnreadReason> {
    let said = match form {
        ReplyForm::Word => Some(reply.to_owned()),
        ReplyForm::Tags => tagged(reply),
        ReplyForm::Think => tagged(after(reply, "</think>")),
        ReplyForm::Plan => tagged(after(reply, "</plan>")),
        ReplyForm::Json => under_action(reply),
    };
    let said = said.map(|said| said.trim().to_owned());
    said.filter(|said| !said.is_empty()).ok_or(match cut {
        true => UnreadReason::CutOff,
        false => UnreadReason::NoTag,
    })
}

/// Returns the index in `actions` of the action that a reply names. Case and surrounding space are ignored.
///
/// # Errors
/// If it names none, or several.
pub(crate) fn action(
    reply: &str,
    form: ReplyForm,
    actions: &[String],
    cut: bool,
) -> Result<usize, UnreadReason> {
    let said = said(reply, form, cut)?.to_lowercase();
    if let Some(action) = actions.iter().position(|action| *action == said) {
        return Ok(action);
    }
    let named = actions.iter().filter(|action| names(&said, action)).count();
    Err(match form {
        _ if named > 1 => UnreadReason::SeveralActions,
        ReplyForm::Word if cut && actions.iter().any(|action| action.starts_with(&said)) => {
            UnreadReason::CutOff
        }
        _ => UnreadReason::UnknownWord,
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

/// Returns whether the action occurs in the text as a separate word.
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

    const FORMS: [ReplyForm; 5] = [
        ReplyForm::Word,
        ReplyForm::Tags,
        ReplyForm::Think,
        ReplyForm::Plan,
        ReplyForm::Json,
    ];

    fn read(reply: &str, form: ReplyForm) -> Result<usize, UnreadReason> {
        action(reply, form, &["left".to_owned(), "down".to_owned()], false)
    }

    /// An ideal reply in every form.
    #[test]
    fn every_action_of_every_game_is_read_back() {
        for kind in lapwing_env::GAMES {
            let scenario = (kind.configure)(&serde_json::json!({})).unwrap();
            let actions = scenario.actions();
            for (i, word) in actions.iter().enumerate() {
                for form in FORMS {
                    let tags = format!("<action>{word}</action>");
                    let reply = match form {
                        ReplyForm::Word => word.clone(),
                        ReplyForm::Tags => format!("I think so. {tags}"),
                        ReplyForm::Think => format!("<think>Not <action>.</think>{tags}"),
                        ReplyForm::Plan => format!("<plan>Go.</plan>\n{tags}"),
                        ReplyForm::Json => {
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
        assert_eq!(read("left", ReplyForm::Word), Ok(0));
        assert_eq!(read(" Left\n", ReplyForm::Word), Ok(0));
        assert_eq!(
            read("left.", ReplyForm::Word),
            Err(UnreadReason::UnknownWord)
        );
        assert_eq!(
            read("go left", ReplyForm::Word),
            Err(UnreadReason::UnknownWord)
        );
        assert_eq!(read("", ReplyForm::Word), Err(UnreadReason::NoTag));
        assert_eq!(
            read("left down", ReplyForm::Word),
            Err(UnreadReason::SeveralActions)
        );
        assert_eq!(
            read("leftdown", ReplyForm::Word),
            Err(UnreadReason::UnknownWord)
        );
    }

    #[test]
    fn tags_are_read_from_the_first_pair() {
        let read = |reply| read(reply, ReplyForm::Tags);
        assert_eq!(read("so <action>down</action>"), Ok(1));
        assert_eq!(read("<action> DOWN </action><action>left</action>"), Ok(1));
        assert_eq!(read("<action>down"), Err(UnreadReason::NoTag));
        assert_eq!(read("</action>down<action>"), Err(UnreadReason::NoTag));
        assert_eq!(read("<action></action>"), Err(UnreadReason::NoTag));
        assert_eq!(read("down"), Err(UnreadReason::NoTag));
        assert_eq!(
            read("<action>jump</action>"),
            Err(UnreadReason::UnknownWord)
        );
        assert_eq!(
            read("<action>down, left</action>"),
            Err(UnreadReason::SeveralActions)
        );
    }

    #[test]
    fn thoughts_are_no_actions() {
        let reply = "<think><action>left</action> would fall</think><action>down</action>";
        assert_eq!(read(reply, ReplyForm::Think), Ok(1));
        assert_eq!(read(reply, ReplyForm::Tags), Ok(0));
        assert_eq!(
            read("<action>down</action>", ReplyForm::Think),
            Ok(1),
            "not asked to think"
        );
    }

    #[test]
    fn json_may_hold_more_than_the_action() {
        let read = |reply| read(reply, ReplyForm::Json);
        assert_eq!(
            read("```json\n{\"why\": {}, \"action\": \"left\"}\n```"),
            Ok(0)
        );
        assert_eq!(read("{\"action\": 1}"), Err(UnreadReason::NoTag));
        assert_eq!(read("{\"action\": \"left\""), Err(UnreadReason::NoTag));
        assert_eq!(read("left"), Err(UnreadReason::NoTag));
    }

    #[test]
    fn a_reply_that_was_cut_off_is_told_from_one_that_has_no_action() {
        let cut = |reply, form| action(reply, form, &["left".to_owned()], true);
        assert_eq!(
            cut("I think that", ReplyForm::Tags),
            Err(UnreadReason::CutOff)
        );
        assert_eq!(
            cut("{\"action\": \"le", ReplyForm::Json),
            Err(UnreadReason::CutOff)
        );
        assert_eq!(cut("le", ReplyForm::Word), Err(UnreadReason::CutOff));
        // More tokens do not help a model that replies with another word.
        assert_eq!(cut("jump", ReplyForm::Word), Err(UnreadReason::UnknownWord));
        assert_eq!(
            cut("<action>jump</action>", ReplyForm::Tags),
            Err(UnreadReason::UnknownWord)
        );
    }

    #[test]
    fn free_text_is_what_stands_where_the_action_would() {
        assert_eq!(
            said(" [up] now\n", ReplyForm::Word, false),
            Ok("[up] now".to_owned())
        );
        assert_eq!(
            said("So: <action>[up]</action>", ReplyForm::Tags, false),
            Ok("[up]".to_owned())
        );
        assert_eq!(said(" ", ReplyForm::Word, false), Err(UnreadReason::NoTag));
    }
}
