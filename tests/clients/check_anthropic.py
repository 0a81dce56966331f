"""The Anthropic library against an edge at $EDGE; ends with an exception at what is not as it should be."""

import os

import anthropic

client = anthropic.Anthropic(base_url=os.environ["EDGE"], api_key="none", max_retries=0)
LOOK = {"name": "look", "input_schema": {"type": "object", "properties": {}}}


def ask(model="m", text="hello", **more):
    return client.messages.create(
        model=model, max_tokens=5, messages=[{"role": "user", "content": text}], **more
    )


def an_answer_is_whole():
    answer = ask(system="be short")
    assert len(answer.content[0].text) == 20, answer
    assert (answer.stop_reason, answer.usage.output_tokens) == ("max_tokens", 5), answer


def a_stream_is_put_together_by_the_library():
    messages = [{"role": "user", "content": "hello"}]
    with client.messages.stream(model="m", max_tokens=20, messages=messages) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == final.content[0].text and len(text) == 80, final
    assert (final.stop_reason, final.usage.output_tokens) == ("max_tokens", 20), final


def a_cached_prompt_is_reported():
    text = "a long story about the river. " * 400
    ask(text=text)
    usage = ask(text=text).usage
    assert 2000 < usage.cache_read_input_tokens, usage


def a_tool_is_called_whole_and_streamed():
    choice = {"type": "tool", "name": "look"}
    block = ask(tools=[LOOK], tool_choice=choice).content[0]
    assert (block.type, block.name) == ("tool_use", "look"), block
    messages = [{"role": "user", "content": "hello"}]
    with client.messages.stream(
        model="m", max_tokens=5, messages=messages, tools=[LOOK], tool_choice={"type": "any"}
    ) as stream:
        final = stream.get_final_message()
    assert final.content[0].input == block.input, final
    assert final.stop_reason == "tool_use", final


def each_error_is_the_librarys_own():
    for kind, status, request in (
        (anthropic.NotFoundError, 404, {"model": "nobody-has-this"}),
        (anthropic.RequestTooLargeError, 413, {"text": "x" * 300_000}),
        (anthropic.InternalServerError, 502, {"model": "unreachable"}),
        (anthropic.InternalServerError, 503, {"model": "drained"}),
        (anthropic.BadRequestError, 400, {"model": "says-400"}),
        (anthropic.RateLimitError, 429, {"model": "says-429"}),
    ):
        try:
            ask(**request)
        except kind as error:
            assert error.status_code == status, error
        else:
            raise AssertionError(f"{kind.__name__} was expected")


for check in (
    an_answer_is_whole,
    a_stream_is_put_together_by_the_library,
    a_cached_prompt_is_reported,
    a_tool_is_called_whole_and_streamed,
    each_error_is_the_librarys_own,
):
    check()
    print("ok", check.__name__)
