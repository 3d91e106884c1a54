"""Pairs of models that use each path of an inferred migration."""

from models import Attribute, Entity, Model, Relationship


def _attribute(name, kind, identifier=None, **more):
    one = Attribute(name, kind)
    one.identifier = identifier or name
    for key, value in more.items():
        setattr(one, key, value)
    return one


def _entity(model, name, parent=None, identifier=None, attributes=()):
    one = Entity(name, parent)
    one.identifier = identifier or name
    one.attributes = list(attributes)
    model.add(one)
    return one


def _link(model, owner, name, target, back=None, many=False, ordered=False, back_many=False, back_ordered=False,
          identifier=None, back_identifier=None):
    one = Relationship(name, target, back)
    one.many, one.ordered, one.identifier = many, ordered, identifier or name
    model.entities[owner].relationships.append(one)
    if back:
        other = Relationship(back, owner, name)
        other.many, other.ordered, other.identifier = back_many, back_ordered, back_identifier or back
        model.entities[target].relationships.append(other)


def _plain():
    return [
        _attribute("a", "String"), _attribute("b", "String"), _attribute("image_url", "String"),
        _attribute("data", "Binary"), _attribute("n", "Double"), _attribute("opt", "String"), _attribute("gone", "Date"),
        _attribute("kept", "Integer 32", preserved=True), _attribute("last", "String", preserved=True),
    ]


def _defaults():
    return [
        _attribute("dBool", "Boolean", default="YES"), _attribute("dWhole", "Integer 32", default="7"),
        _attribute("dReal", "Double", default="2.5"), _attribute("dFloat", "Float", default="0.25"),
        _attribute("dDate", "Date", default="600000000"), _attribute("dText", "String", default="it's"),
        _attribute("dUrl", "URI", default="http://example.com/"), _attribute("dDecimal", "Decimal", default="12.25"),
        _attribute("dId", "UUID", default="01020304-0506-0708-090A-0B0C0D0E0F10"),
    ]


def values(rebuilt):
    """Returns attributes of a hierarchy, in rebuilt or altered tables."""
    old, new = Model(), Model()
    _entity(old, "P", attributes=_plain())
    _entity(old, "Q", "P", attributes=[_attribute("own", "Integer 16"), _attribute("twice", "String")])
    _entity(old, "R", "P", attributes=[_attribute("twice", "String"), _attribute("up", "String")])
    if rebuilt:
        _entity(old, "Removed", "P", attributes=[_attribute("x", "String")])
    attributes = [
        _attribute("a", "String", "b"), _attribute("b", "String", "a"), _attribute("image_url", "String"),
        _attribute("image", "String"), _attribute("renamed", "Integer 32", "kept", preserved=True),
        _attribute("aLast", "String", "last", preserved=True),
    ] + _defaults()
    if rebuilt:
        attributes += [
            _attribute("data", "Binary", external=True), _attribute("n", "Integer 32"),
            _attribute("opt", "String", optional=False, default="none"), _attribute("up", "String"),
        ]
        attributes = attributes[::-1]
    else:
        attributes += [
            _attribute("data", "Binary", external=True), _attribute("n", "Double"),
            _attribute("opt", "String", optional=False, default="none"), _attribute("gone", "Date"),
        ]
    _entity(new, "Aa", attributes=[_attribute("new", "String")])
    _entity(new, "P", attributes=attributes)
    _entity(new, "Between", "P", attributes=[_attribute("own2", "String", default="x")])
    _entity(new, "Q", "P", attributes=[_attribute("own", "Integer 16"), _attribute("second", "String", "twice")])
    more = [] if rebuilt else [_attribute("up", "String")]
    _entity(new, "R2", "P", "R", attributes=[_attribute("twice", "String")] + more)
    for model in (old, new):
        _link(model, "Q", "boss", "P", "staff", back_many=True, back_ordered=True)
        _link(model, "P", "friends", "P", "admirers", many=True, ordered=True, back_many=True)
    return old, new


def links(order):
    """Returns relationships whose storage changes."""
    old, new = Model(), Model()
    for model in (old, new):
        if model is new:
            _entity(new, "Aa")
        _entity(model, "A", attributes=[_attribute("a", "String")])
        _entity(model, "A1", "A")
        _entity(model, "A2", "A")
        _entity(model, "T", attributes=[_attribute("t", "String")])
        _entity(model, "T1", "T")
        if model is old:
            _entity(old, "Gone", "T")
    _link(old, "A", "widened", "T", "wide", back_many=True, back_ordered=order)
    _link(new, "A", "widened", "T", "wide", many=True, ordered=order, back_many=True, back_ordered=order)
    _link(old, "A", "lone", "T", "loneBack", many=True, ordered=order)
    _link(new, "A", "lone", "T", many=True, ordered=order)
    _link(old, "A", "shared", "T", "sharers", many=True, ordered=order, back_many=True)
    _link(new, "A", "shared", "T", many=True, ordered=order)
    _link(old, "A1", "up", "T", "ups", many=True, ordered=order, back_many=True, back_ordered=order)
    _link(new, "A", "up", "T", "ups", many=True, ordered=order, back_many=True, back_ordered=order)
    _link(old, "A", "was", "T", "wasBack", many=True, ordered=True, back_many=True, back_ordered=True)
    _link(new, "A", "isNow", "T", "isBack", many=True, ordered=True, back_many=True, back_ordered=True,
          identifier="was", back_identifier="wasBack")
    _link(old, "A", "toOne", "T1", "toOnes", back_many=True)
    _link(new, "A", "toOne", "T", "toOnes", back_many=True, back_ordered=True)
    _link(old, "T", "plain", "A", many=True, ordered=True)
    _link(new, "T", "plain2", "A", many=True, ordered=True, identifier="plain")
    _link(old, "A", "narrow", "T", "narrowBack", many=True, back_many=True)
    _link(new, "A", "narrow", "T1", "narrowBack2", many=True, back_many=True)
    for name, model in (("old", old), ("new", new)):
        one = Relationship("mates", "A", "mates")
        one.many = True
        model.entities["A"].relationships.append(one)
    return old, new


PAIRS = [lambda: values(True), lambda: values(False), lambda: links(True), lambda: links(False)]
