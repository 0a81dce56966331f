"""The OpenAI library against an edge at $EDGE; ends with an exception at what is not as it should be."""

import os

import openai

client = openai.OpenAI(base_url=f"{os.environ['EDGE']}/v1", api_key="none", max_retries=0)
LOOK = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {}}},
}


def ask(model="m", text="hello", **more):
    messages = [{"role": "user", "content": text}]
    return client.chat.completions.create(model=model, messages=messages, **more)


def models_are_listed():
    assert "m" in [model.id for model in client.models.list()]
    assert client.models.retrieve("m").id == "m"


def an_answer_is_whole():
    answer = ask(max_tokens=5)
    assert len(answer.choices[0].message.content) == 20, answer
    assert answer.choices[0].finish_reason == "length", answer
    assert answer.usage.completion_tokens == 5, answer


def a_stream_comes_in_parts_and_ends_with_usage():
    chunks = list(ask(max_tokens=20, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert len(text) == 80, chunks
    assert chunks[-1].usage.completion_tokens == 20, chunks[-1]


def a_conversation_stays_with_the_worker_that_has_it_cached():
    question = "a long story about the sea. " * 400
    raw = client.chat.completions.with_raw_response
    first = raw.create(model="m", max_tokens=5, messages=[{"role": "user", "content": question}])
    message = first.parse().choices[0].message
    second = raw.create(
        model="m",
        max_tokens=5,
        messages=[
            {"role": "user", "content": question},
            {"role": "assistant", "content": message.content},
            {"role": "user", "content": "and then?"},
        ],
    )
    workers = [answer.headers["x-tidegate-worker"] for answer in (first, second)]
    assert workers[0] == workers[1], workers
    assert 2000 < second.parse().usage.prompt_tokens_details.cached_tokens, second.parse().usage


def a_tool_is_called_whole_and_streamed():
    call = ask(max_tokens=5, tools=[LOOK], tool_choice="required").choices[0].message.tool_calls[0]
    assert (call.function.name, call.type) == ("look", "function"), call
    parts = ask(max_tokens=5, tools=[LOOK], tool_choice="required", stream=True)
    deltas = [part.choices[0].delta.tool_calls[0].function for part in parts if part.choices[0].delta.tool_calls]
    assert deltas[0].name == "look", deltas
    assert "".join(delta.arguments for delta in deltas) == call.function.arguments, deltas


def completions_are_answered():
    assert len(client.completions.create(model="m", prompt="once", max_tokens=3).choices[0].text) == 12
    parts = client.completions.create(model="m", prompt="once", max_tokens=3, stream=True)
    assert len("".join(part.choices[0].text for part in parts)) == 12


def fails(kind, status, code=None, **request):
    try:
        ask(**request)
    except kind as error:
        assert error.status_code == status, error
        assert code in (None, error.code), error.body
        return error
    raise AssertionError(f"{kind.__name__} was expected of {list(request)}")


def each_error_is_the_librarys_own():
    fails(openai.NotFoundError, 404, "model_not_found", model="nobody-has-this")
    fails(openai.APIStatusError, 413, "body_too_large", text="x" * 300_000)
    fails(openai.InternalServerError, 502, "worker_unreachable", model="unreachable")
    unroutable = fails(openai.InternalServerError, 503, "no_routable_worker", model="drained")
    assert unroutable.response.headers["retry-after"] == "5"
    # What engines say themselves passes unchanged.
    for status, kind in {
        400: openai.BadRequestError,
        401: openai.AuthenticationError,
        422: openai.UnprocessableEntityError,
        429: openai.RateLimitError,
        500: openai.InternalServerError,
        503: openai.InternalServerError,
    }.items():
        assert "told to fail" in str(fails(kind, status, model=f"says-{status}"))
    fails(openai.NotFoundError, 404, "model_not_found", model="nobody-has-this", stream=True)


def a_client_may_leave_in_the_middle():
    stream = ask(text="leave", max_tokens=500_000, stream=True)
    for chunk in stream:
        if chunk.choices[0].delta.content:
            stream.close()
            break


for check in (
    models_are_listed,
    an_answer_is_whole,
    a_stream_comes_in_parts_and_ends_with_usage,
    a_conversation_stays_with_the_worker_that_has_it_cached,
    a_tool_is_called_whole_and_streamed,
    completions_are_answered,
    each_error_is_the_librarys_own,
    a_client_may_leave_in_the_middle,
):
    check()
    print("ok", check.__name__)
