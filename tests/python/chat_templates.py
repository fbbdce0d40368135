"""Three chat templates with the constructs of the published ones, and conversations rendered through them.

The wording is ours; what counts are the Jinja constructs, each of which a port to another language can get wrong:

- `tools`, as Qwen2.5-Instruct: the branch for tools, `tojson`, neighbours by `loop.index0`, rebinding in a loop;
- `thinking`, as Qwen3: `namespace`, `messages[::-1]`, Python's string methods, `enable_thinking`;
- `dated`, as Llama 3.1 and 3.2: `strftime_now`, `trim`, slices, `is iterable`, `tojson(indent=4)`, `raise_exception`.
"""

from collections.abc import Iterator

import jinja2
from transformers.utils.chat_template_utils import render_jinja_template

TOOLS = r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are a careful player.' }}
    {%- endif %}
    {{- "\n\nYou may call these, one signature a line within <tools></tools>:\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools>\nA call is written so:\n<call>\n{\"name\": <name>, \"arguments\": <object>}\n</call><|im_end|>\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>system\nYou are a careful player.<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\n' + message.content }}
        {%- endif %}
        {%- for call in message.tool_calls %}
            {%- if call.function is defined %}
                {%- set call = call.function %}
            {%- endif %}
            {{- '\n<call>\n{"name": "' }}
            {{- call.name }}
            {{- '", "arguments": ' }}
            {{- call.arguments | tojson }}
            {{- '}\n</call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<answer>\n' }}
        {{- message.content }}
        {{- '\n</answer>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""

THINKING = r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\n\n' }}
    {%- endif %}
    {{- "Callable:" }}
    {%- for tool in tools %}
        {{- "\n" ~ loop.index ~ ". " }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "<|im_end|>\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(searching=true, last_question=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" and message.content is string and not(message.content.startswith('<answer>') and message.content.endswith('</answer>')) %}
        {%- set ns.searching = false %}
        {%- set ns.last_question = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_question and (loop.last or (not loop.last and reasoning_content)) %}
            {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\n' }}
                {%- endif %}
                {%- if call.function %}
                    {%- set call = call.function %}
                {%- endif %}
                {{- '<call>\n{"name": "' }}
                {{- call.name }}
                {{- '", "arguments": ' }}
                {%- if call.arguments is string %}
                    {{- call.arguments }}
                {%- else %}
                    {{- call.arguments | tojson }}
                {%- endif %}
                {{- '}\n</call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<answer>\n' + content + '\n</answer>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}"""

DATED = r"""{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "1 Jan 2025" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- The system message may have blanks around it. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|im_start|>system\n\n" }}
{%- if builtin_tools is defined or tools is not none %}
    {{- "Place: board\n" }}
{%- endif %}
{%- if builtin_tools is defined %}
    {{- "Tools: " + builtin_tools | reject('equalto', 'dice') | join(", ") + "\n\n" }}
{%- endif %}
{{- "Today: " + date_string + "\n\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {{- "Answer with a call, {\"name\": name, \"parameters\": {name: value}}, of one of these.\n\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|im_end|>" }}

{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("No first user message to put the tools into") }}
    {%- endif %}
    {{- '<|im_start|>user\n\n' -}}
    {{- "Given these, answer with a call.\n\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
    {{- first + "<|im_end|>" }}
{%- endif %}

{%- for message in messages %}
    {%- if not (message.role == 'board' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|im_start|>' + message['role'] + '\n\n' + message['content'] | trim + '<|im_end|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("One call at a time") }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|im_start|>assistant\n\n' -}}
        {%- if builtin_tools is defined and call.name in builtin_tools %}
            {{- call.name + ".call(" }}
            {%- for name, value in call.arguments | items %}
                {{- name + '="' + value + '"' }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- endif %}
            {%- endfor %}
            {{- ")" }}
        {%- else %}
            {{- '{"name": "' + call.name + '", ' }}
            {{- '"parameters": ' }}
            {{- call.arguments | tojson }}
            {{- "}" }}
        {%- endif %}
        {{- "<|im_end|>" }}
    {%- elif message.role == "tool" or message.role == "board" %}
        {{- "<|im_start|>board\n\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|im_end|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n\n' }}
{%- endif %}
"""

TEMPLATES = {"tools": TOOLS, "thinking": THINKING, "dated": DATED}

_TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": 'What lies on a cell: "hole" & <goal>, d\'après é ✓.',
        "parameters": {
            "type": "object",
            "properties": {"row": {"type": "integer"}, "column": {"type": "integer", "default": 0}},
            "required": ["row"],
        },
    },
}
_SYSTEM = {"role": "system", "content": "  Play well.\n"}
_BOARD = {"role": "user", "content": "P _ O\n_ _ G\n"}
_RIGHT = {"role": "assistant", "content": "<action>right</action>"}
_THOUGHT = {"role": "assistant", "content": "<think>\nA hole is near.\n</think>\n\n<action>down</action>"}
_REASONED = {"role": "assistant", "content": "\ndown", "reasoning_content": "\nNo hole there.\n\n"}
_NEXT = {"role": "user", "content": " next é ✓ \n"}
_LOOK = {"function": {"name": "look", "arguments": {"row": 1, "column": 2.5, "why": 'a "<b>" & é', "sure": True}}}
_CALL = {"role": "assistant", "content": "", "tool_calls": [_LOOK]}
_ANSWER = {"role": "tool", "content": "ice & <snow>"}


def _cases() -> Iterator[tuple[str, list[dict], dict]]:
    """Name of the template, messages and variables of every case."""
    plain = [_SYSTEM, _BOARD]
    turns = [_BOARD, _RIGHT, _NEXT]
    dated = {"bos_token": "<|begin_of_text|>", "date_string": "26 Jul 2024"}

    for messages in [plain, [_BOARD], [_SYSTEM, *turns], [_BOARD, _RIGHT, _SYSTEM, _NEXT]]:
        yield "tools", messages, {}
        yield "thinking", messages, {}
        yield "dated", messages, dated

    calls = [_BOARD, _CALL, _ANSWER, _ANSWER, _RIGHT, _NEXT]
    unnested = {"role": "assistant", "content": "I look.", "tool_calls": [_LOOK["function"], _LOOK]}
    yield "tools", [_SYSTEM, *calls], {"tools": [_TOOL, _TOOL]}
    yield "tools", [_BOARD, unnested, _ANSWER], {"tools": [_TOOL]}
    yield "tools", [_BOARD], {"tools": []}

    for thinking in [{}, {"enable_thinking": True}, {"enable_thinking": False}]:
        yield "thinking", [_BOARD, _THOUGHT, _NEXT], thinking
        yield "thinking", [_BOARD, _NEXT, _THOUGHT], thinking
    yield "thinking", [_BOARD, _REASONED, _NEXT, _REASONED], {}
    yield "thinking", [_SYSTEM, *calls], {"tools": [_TOOL]}
    as_text = {"name": "look", "arguments": '{"row": 1}'}
    both = {"role": "assistant", "content": "I look.", "tool_calls": [as_text, _LOOK]}
    quoted = {"role": "user", "content": "<answer>ice</answer>"}
    yield "thinking", [_BOARD, both, quoted, _REASONED], {"tools": [_TOOL]}
    parts = {"role": "user", "content": [{"type": "text", "text": "not a string"}]}
    yield "thinking", [_BOARD, parts], {}

    yield "dated", calls, dated
    yield "dated", [_SYSTEM, *calls], dated | {"tools": [_TOOL]}
    yield "dated", calls, dated | {"custom_tools": [_TOOL], "tools_in_user_message": False}
    ask = {"function": {"name": "ask", "arguments": {"who": "me", "what": "é"}}}
    asking = {"role": "assistant", "tool_calls": [ask]}
    yield "dated", [_BOARD, asking, _ANSWER], dated | {"builtin_tools": ["ask", "dice", "map"]}
    for content in [{"cell": "ice", "row": 1}, ["ice", None, 1.0, 0.25], 3, True]:
        yield "dated", [_BOARD, _CALL, {"role": "board", "content": content}], dated
    yield "dated", [_SYSTEM], dated | {"tools": [_TOOL]}
    yield "dated", [_BOARD, {"role": "assistant", "tool_calls": [_LOOK, _LOOK]}], dated


def rendered_cases() -> dict:
    """The templates, and the cases with the text that transformers renders, or the error that the template raises."""
    cases = []
    for template, messages, variables in _cases():
        # What ends with a reply is a finished conversation.
        prompt = messages[-1]["role"] != "assistant"
        case = {"template": template, "messages": messages, "variables": variables, "add_generation_prompt": prompt}
        cases.append(case | _render(case))
    return {"templates": TEMPLATES, "cases": cases}


def _render(case: dict) -> dict:
    try:
        texts, _ = render_jinja_template(
            conversations=[case["messages"]],
            chat_template=TEMPLATES[case["template"]],
            add_generation_prompt=case["add_generation_prompt"],
            **case["variables"],
        )
    except jinja2.TemplateError as error:
        return {"error": str(error)}
    return {"text": texts[0]}
