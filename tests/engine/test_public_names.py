from macro_routing import engine


def test_every_public_name_can_be_imported():
    assert dir(engine) == sorted(engine.__all__)
    for name in engine.__all__:
        assert getattr(engine, name) is not None
