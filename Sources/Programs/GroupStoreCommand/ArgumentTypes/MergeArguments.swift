import ArgumentParser
import StoreMerging
import StoreRelocation

/// The options of a merge of two stores.
struct MergeArguments: ParsableArguments {
    @Option(
        name: .customLong("merge-key"),
        help: ArgumentHelp(
            """
            Match the objects of an entity, or the rows of a table, by these attributes or columns: Note=uuid, \
            Page=note,number, or Log=* to match only what is equal in everything. Repeatable.
            """, valueName: "name=attributes"))
    var keys: [String] = []

    @Option(
        name: .customLong("reference"),
        help: ArgumentHelp(
            """
            Declare that a column refers to another one, though the schema has no FOREIGN KEY for it: \
            note_tag.tag_id=tag.id. If rows get other numbers, it follows. Repeatable.
            """, valueName: "table.column=table.column"))
    var references: [String] = []

    @Option(
        name: .customLong("prefer"),
        help: ArgumentHelp(
            """
            Which of two matched objects that differ a merge keeps: group, legacy, or newer:ATTRIBUTE. Repeatable: the \
            first that decides.
            """, valueName: "side"),
        completion: .list(["group", "legacy", "newer:"]))
    var preferences: [String] = []

    var options: MergeOptions {
        var options = MergeOptions()
        options.keys = keys.compactMap(MergeKey.init)
        options.references = references.compactMap(MergeReference.init)
        options.preferences = preferences.compactMap(MergePreference.init)
        return options
    }

    func validate(for policy: RelocationRequest.ConflictPolicy) throws {
        guard policy == .merge || (keys.isEmpty && preferences.isEmpty && references.isEmpty) else {
            throw ValidationError("--merge-key, --reference and --prefer need --on-conflict merge")
        }
        for text in references where MergeReference(text) == nil {
            throw ValidationError("--reference \(text): write TABLE.COLUMN=TABLE.COLUMN")
        }
        if let repeated = references.compactMap(MergeReference.init).firstRepeated {
            throw ValidationError("--reference declares \(repeated.source.text) twice")
        }
        for text in keys where MergeKey(text) == nil {
            throw ValidationError("--merge-key \(text): write NAME=ATTRIBUTE, NAME=A,B or NAME=*")
        }
        for text in preferences where MergePreference(text) == nil {
            throw ValidationError("--prefer \(text): write group, legacy or newer:ATTRIBUTE")
        }
        let names = keys.compactMap(MergeKey.init).map { Array($0.name.utf8) }
        guard Set(names).count == names.count else { throw ValidationError("--merge-key names one entity twice") }
    }
}
