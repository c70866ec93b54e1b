"""The documents of the HTTP API: values that nothing changes, made by name."""

import importlib
import pkgutil
from collections.abc import Iterator

import msgspec
import pytest

from tidemill.wire import http
from tidemill.wire.http.document import Document, Input


def below(kind: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for each in kind.__subclasses__():
        yield each
        yield from below(each)


for module in pkgutil.iter_modules(http.__path__, f"{http.__name__}."):
    importlib.import_module(module.name)
DOCUMENTS: list[type[msgspec.Struct]] = [Document, *below(Document), Input, *below(Input)]


@pytest.mark.parametrize("kind", DOCUMENTS, ids=lambda kind: kind.__qualname__)
def test_documents_are_frozen_and_their_fields_have_names(kind: type[msgspec.Struct]) -> None:
    assert kind.__struct_config__.frozen, "documents are shared between requests"
    assert kind.__match_args__ == (), "a field that is added in the middle must not move the others"


@pytest.mark.parametrize("kind", [Input, *below(Input)], ids=lambda kind: kind.__qualname__)
def test_a_field_that_the_server_does_not_know_is_an_error(kind: type[msgspec.Struct]) -> None:
    assert kind.__struct_config__.forbid_unknown_fields
