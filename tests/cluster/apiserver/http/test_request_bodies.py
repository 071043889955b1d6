from trainwright.cluster.apiserver.http.request_bodies import Body, strict_decoding_errors


def test_repeated_fields_are_found_at_any_depth() -> None:
    text = b'{"a": 1, "b": [{"c": 1, "c": {"d": 1, "d": 2}}], "a": {"e": 1, "e": 2}}'

    found = strict_decoding_errors(Body({}, text), ["x.y"])

    assert sorted(found[:-1]) == [f'duplicate field "{path}"' for path in ("a", "a.e", "b[0].c", "b[0].c.d")]
    assert found[-1] == 'unknown field "x.y"'
