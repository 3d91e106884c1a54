import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Two Core Data stores with objects of their own: inheritance, ordered and many-to-many relationships, a one-to-one
/// relationship, a relationship to the same entity, external data, a derived attribute.
struct MergeStores {
    static let entities = """
        <entity name="Item" isAbstract="YES"><attribute name="uuid" attributeType="String"/>
        <attribute name="changed" optional="YES" attributeType="Date"/>
        <uniquenessConstraints><uniquenessConstraint><constraint value="uuid"/></uniquenessConstraint>
        </uniquenessConstraints></entity>
        <entity name="Folder" parentEntity="Item">
        <relationship name="notes" optional="YES" toMany="YES" destinationEntity="Note" inverseName="folder"
          inverseEntity="Note"/>
        <relationship name="parent" optional="YES" maxCount="1" destinationEntity="Folder" inverseName="children"
          inverseEntity="Folder"/>
        <relationship name="children" optional="YES" toMany="YES" destinationEntity="Folder" inverseName="parent"
          inverseEntity="Folder"/></entity>
        <entity name="Note" parentEntity="Item"><attribute name="title" optional="YES" attributeType="String"/>
        <attribute name="photo" optional="YES" attributeType="Binary" allowsExternalBinaryDataStorage="YES"/>
        <attribute name="count" optional="YES" attributeType="Integer 32" derived="YES"
          derivationExpression="pages.@count"/>
        <relationship name="folder" optional="YES" maxCount="1" destinationEntity="Folder" inverseName="notes"
          inverseEntity="Folder"/>
        <relationship name="pages" optional="YES" toMany="YES" ordered="YES" destinationEntity="Page"
          inverseName="note" inverseEntity="Page"/>
        <relationship name="tags" optional="YES" toMany="YES" destinationEntity="Tag" inverseName="notes"
          inverseEntity="Tag"/>
        <relationship name="cover" optional="YES" maxCount="1" destinationEntity="Cover" inverseName="note"
          inverseEntity="Cover"/></entity>
        <entity name="Page"><attribute name="number" optional="YES" attributeType="Integer 32"/>
        <relationship name="note" optional="YES" maxCount="1" destinationEntity="Note" inverseName="pages"
          inverseEntity="Note"/></entity>
        <entity name="Tag"><attribute name="name" attributeType="String"/>
        <relationship name="notes" optional="YES" toMany="YES" ordered="YES" destinationEntity="Note"
          inverseName="tags" inverseEntity="Note"/></entity>
        <entity name="Cover"><attribute name="color" attributeType="String"/>
        <relationship name="note" optional="YES" maxCount="1" destinationEntity="Note" inverseName="cover"
          inverseEntity="Note"/></entity>
        """
    static let keys: [Word] = [
        "--merge-key", "Page=note,number", "--merge-key", "Tag=name", "--merge-key", "Cover=color",
    ]

    let places: Places
    let model: FilePath
    private let scratch: TemporaryDirectory

    init(_ fileSystem: Places.FileSystem = .same) throws {
        places = try Places(fileSystem)
        scratch = try TemporaryDirectory()
        let newer = Self.entities.replacing("name=\"title\"", with: "name=\"caption\" elementID=\"title\"")
        model = try ModelBundle.make(in: scratch, [("Notes", Self.entities), ("Notes 2", newer)])
    }

    var legacy: FilePath { places.legacy.appending("Notes.sqlite") }
    var group: FilePath { places.group.appending("Notes.sqlite") }

    /// Makes both stores. Entities are numbered Cover 1, Item 2, Folder 3, Note 4, Page 5, Tag 6.
    func make(groupVersion: String = "Notes", legacyVersion: String = "Notes") throws {
        let blue = "x'0231313131313131312D313131312D343131312D383131312D31313131313131313131313100'"
        let red = "x'0232323232323232322D323232322D343232322D383232322D32323232323232323232323200'"
        try fill(
            group, groupVersion,
            """
            INSERT INTO ZITEM (Z_PK, Z_ENT, Z_OPT, ZUUID, ZPARENT) VALUES (1, 3, 1, 'F1', NULL), (2, 3, 1, 'F2', 1);
            INSERT INTO ZITEM (Z_PK, Z_ENT, Z_OPT, ZUUID, ZCHANGED, ZTITLE, ZFOLDER, ZCOVER, ZPHOTO) VALUES
              (3, 4, 7, 'N1', 10, 'n1', 1, 1, \(blue)), (4, 4, 7, 'N2', 20, 'n2', 2, NULL, x'01AABB'),
              (5, 4, 7, 'N5', 1, 'only here', NULL, NULL, NULL);
            INSERT INTO ZPAGE (Z_PK, Z_ENT, Z_OPT, ZNUMBER, ZNOTE, Z_FOK_NOTE) VALUES (1, 5, 1, 1, 3, 2048),
              (2, 5, 1, 2, 3, 3072);
            INSERT INTO ZTAG VALUES (1, 6, 1, 'red'), (2, 6, 1, 'blue');
            INSERT INTO Z_4TAGS VALUES (3, 1, 2048), (4, 1, 3072);
            INSERT INTO ZCOVER (Z_PK, Z_ENT, Z_OPT, ZNOTE, ZCOLOR) VALUES (1, 1, 1, 3, 'gold')
            """, files: ["11111111-1111-4111-8111-111111111111": "group's"])
        try fill(
            legacy, legacyVersion,
            """
            INSERT INTO ZITEM (Z_PK, Z_ENT, Z_OPT, ZUUID, ZPARENT) VALUES (3, 3, 1, 'F2', 5), (5, 3, 1, 'F1', NULL);
            INSERT INTO ZITEM (Z_PK, Z_ENT, Z_OPT, ZUUID, ZCHANGED, ZTITLE, ZFOLDER, ZCOVER, ZPHOTO) VALUES
              (1, 4, 1, 'N2', 25, 'n2 later', 3, NULL, x'01AABB'), (2, 4, 1, 'N1', 5, 'n1 before', NULL, 2, \(blue)),
              (4, 4, 1, 'N3', 1, 'n3', 3, 1, \(blue)), (6, 4, 1, 'N4', 1, 'n4', 99, NULL, \(red));
            INSERT INTO ZPAGE (Z_PK, Z_ENT, Z_OPT, ZNUMBER, ZNOTE, Z_FOK_NOTE) VALUES (1, 5, 1, 1, 2, 2048),
              (2, 5, 1, 3, 2, 3072), (3, 5, 1, 1, 4, 2048);
            INSERT INTO ZTAG VALUES (1, 6, 1, 'blue'), (2, 6, 1, 'red'), (3, 6, 1, 'green');
            INSERT INTO Z_4TAGS VALUES (4, 2, 2048), (1, 2, 3072), (6, 3, 2048), (98, 3, 4096);
            INSERT INTO ZCOVER (Z_PK, Z_ENT, Z_OPT, ZNOTE, ZCOLOR) VALUES (1, 1, 1, 4, 'silver'), (2, 1, 1, 2, 'black')
            """,
            files: [
                "11111111-1111-4111-8111-111111111111": "legacy", "22222222-2222-4222-8222-222222222222": "red",
            ])
    }

    private func fill(_ path: FilePath, _ version: String, _ rows: String, files: [String: String]) throws {
        let made = try groupstore("create", Word(path), "--model", Word(model), "--version", Word(version))
        guard made.status == 0 else { throw Unexpected(made.errors) }
        // The shell lacks the functions that Core Data's triggers call.
        let triggers = try sqlite(path, "SELECT sql || ';' FROM sqlite_schema WHERE type = 'trigger'")
        let names = try sqlite(path, "SELECT name FROM sqlite_schema WHERE type = 'trigger'").split(separator: "\n")
        let title = version == "Notes" ? rows : rows.replacing("ZTITLE", with: "ZCAPTION")
        let maxima = [(1, "ZCOVER"), (2, "ZITEM"), (5, "ZPAGE"), (6, "ZTAG")].map { entity, table in
            "UPDATE Z_PRIMARYKEY SET Z_MAX = (SELECT max(Z_PK) FROM \(table)) WHERE Z_ENT = \(entity);"
        }
        try sqlite(
            path, names.map { "DROP TRIGGER \($0);" }.joined() + title + ";" + maxima.joined() + triggers)
        let folder = try StoreFiles(path).support.appending("_EXTERNAL_DATA")
        try run("mkdir", ["-p", Word(folder)])
        for (name, text) in files { try write(text, to: folder.appending(name)) }
    }

    func merge(_ options: Word..., keys: [Word] = keys, environment: [String: String] = [:]) throws -> FinishedProcess {
        try groupstore(
            "relocate", Word(legacy), Word(places.group), "--on-conflict", "merge", "--json",
            options: keys + options, environment: environment)
    }

    func rows(_ sql: String) throws -> String { try sqlite(group, sql).trimmed }

    /// Returns the stores in the archive.
    func archived() throws -> [StoreFiles] {
        let archive = places.group.appending(".groupstore/archive")
        guard FileStatus(following: archive) != nil else { return [] }
        return try Directory(archive).names().map { try StoreFiles(archive.appending($0).appending("Notes.sqlite")) }
    }
}
