import SystemPackage
import TestSupport
import Testing

/// The effect of each setting on a hash. `RealModelTests` compares the hashes of real models.
@Suite struct VersionHashTests {
    private static let model = XMLModelReaderTests.model

    /// Returns the hashes computed by another library.
    private static func expected() throws -> [String] {
        let program = """
            import base64, hashlib, struct
            sha = lambda *parts: hashlib.sha256(b''.join(parts)).digest()
            def base(name, flags=0, modifier=''):
                return sha(name.encode(), struct.pack('<H', flags), modifier.encode())
            def attribute(name, code, flags=0, more=b''):
                return sha(base(name, flags), struct.pack('<i', code), more)
            def relationship(name, flags, destination, inverse, most, least, more=b''):
                return sha(base(name, flags), destination.encode(), inverse.encode(), struct.pack('<ii', most, least), more)
            notes = relationship('notes', 1, 'Note', 'folder', 0, 0)
            folder = sha(b'Folder', b'\\1', notes)
            sub = sha(b'SubFolder', b'\\0', folder, notes)
            place = attribute('place', 2100) + attribute('city', 700, 1) + attribute('zip', 100)
            note = sha(b'Note', b'\\0', attribute('body', 700), attribute('count', 200, 1), attribute('created', 900),
                attribute('flag', 800), relationship('folder', 0, 'Folder', 'notes', 1, 1),
                attribute('image', 1000, 1, b'\\1\\1'), place, attribute('price', 400),
                relationship('tags', 1, 'Note', '', 7, 0, b'\\1\\0'), sha(b'tags.@count'), b'm', b'body.created')
            print(folder.hex(), note.hex(), sub.hex(), base64.b64encode(sha(folder, note, sub)).decode(),
                base64.b64encode(hashlib.sha512(
                    b'Folder' + folder + b'Note' + note + b'SubFolder' + sub).digest()).decode())
            """
        return String(decoding: try python(program), as: UTF8.self).split { $0.isWhitespace }.map(String.init)
    }

    @Test func computesTheHashesOfAllSettings() throws {
        let model = try XMLModelReaderTests.read(Self.model).model
        let hashes = model.entityVersionHashesByName.sorted { $0.key < $1.key }.map { _, hash in
            hash.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
        }
        #expect(try hashes + [model.versionChecksum, model.versionHashesDigest] == Self.expected())
    }

    /// Settings that don't affect the store may change without a migration.
    @Test(arguments: [
        ("defaultValueString=\"YES\"", "defaultValueString=\"NO\""), ("representedClassName=\"MyNote\"", ""),
        ("deletionRule=\"Cascade\"", "deletionRule=\"Nullify\""), ("elementID=\"text\"", "elementID=\"other\""),
        ("minValueString=\"3\"", ""), ("<entry key=\"a\" value=\"b\"/>", ""), ("byBody", "byOther"),
        ("body != nil", "body == nil"), ("valueTransformerName=\"T\"", ""),
        ("memberEntity name=\"Note\"", "x name=\"\""),
        ("name=\"scratch\" optional=\"YES\"", "name=\"scrap\""),
    ])
    func ignoresSettingsThatNoHashCovers(_ old: String, _ new: String) throws {
        let changed = Self.model.replacing(old, with: new)
        try #require(changed != Self.model)
        let before = try XMLModelReaderTests.read(Self.model).model.entityVersionHashesByName
        #expect(try XMLModelReaderTests.read(changed).model.entityVersionHashesByName == before)
    }

    @Test(arguments: [
        ("name=\"flag\"", "name=\"flag\" optional=\"YES\""), ("Integer 32", "Integer 64"), ("ordered=\"YES\"", ""),
        ("maxCount=\"7\"", "maxCount=\"8\""), ("minCount=\"1\"", ""), ("isAbstract=\"YES\"", ""),
        ("<constraint value=\"created\"/>", ""), ("versionHashModifier=\"m\"", ""),
        ("allowsExternalBinaryDataStorage=\"YES\"", ""), ("tags.@count", "tags.@sum"),
    ])
    func coversSettings(_ old: String, _ new: String) throws {
        let changed = Self.model.replacing(old, with: new)
        try #require(changed != Self.model)
        let before = try XMLModelReaderTests.read(Self.model).model.entityVersionHashesByName
        #expect(try XMLModelReaderTests.read(changed).model.entityVersionHashesByName != before)
    }

    @Test func leavesOutAnInverseThatIsTheRelationshipItself() throws {
        func hash(_ inverse: String) throws -> [UInt8]? {
            try XMLModelReaderTests.read(
                """
                <model><entity name="P"><relationship name="friends" toMany="YES" destinationEntity="P" \(inverse)/>
                </entity></model>
                """
            ).model.entityVersionHashesByName["P"]
        }
        #expect(try hash("inverseName=\"friends\" inverseEntity=\"P\"") == hash(""))
    }
}
