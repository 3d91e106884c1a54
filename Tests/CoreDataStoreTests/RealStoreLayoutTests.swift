import Glibc
import LinuxSystem
import SQLiteStore
import SystemPackage
import Testing

@testable import CoreDataStore

@Suite(.enabled(if: RealStores.directory != nil, "GROUPSTORE_REAL_STORES is not set"))
struct RealStoreLayoutTests {
    /// The tables of a store.
    private struct Schema {
        var statements: [String: String] = [:]
        var columns: [String: [String: String]] = [:]
        var entities: [[String]] = []

        init(_ reader: StoreReader) throws {
            let tables = try reader.prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'table'")
            while try tables.step() { statements[tables.text(0) ?? ""] = tables.text(1) ?? "" }
            for name in statements.keys {
                let columns = try reader.prepare("SELECT name, type FROM pragma_table_info(?)", [.text(name)])
                while try columns.step() { self.columns[name, default: [:]][columns.text(0) ?? ""] = columns.text(1) }
            }
            let entities = try reader.prepare(
                "SELECT Z_ENT, Z_NAME, Z_SUPER FROM Z_PRIMARYKEY WHERE Z_ENT < 16000 ORDER BY 1")
            while try entities.step() {
                self.entities.append([entities.text(0) ?? "", entities.text(1) ?? "", entities.text(2) ?? ""])
            }
        }

        /// Returns true for Core Data's own tables, which no model has.
        static func isOwn(_ table: String) -> Bool {
            ["Z_PRIMARYKEY", "Z_METADATA", "Z_MODELCACHE", "ACHANGE", "ATRANSACTION", "ATRANSACTIONSTRING"]
                .contains(table) || table.hasPrefix("ANSCK") || table.hasPrefix("sqlite_")
        }
    }

    /// Each real store has exactly the tables, columns, types and entity numbers that its model predicts.
    @Test func predictsTheLayoutOfEveryRealStore() throws {
        var sameStatements = 0
        var tables = 0
        for path in try RealStores.all() {
            let location = try RealStores.location(path)
            let model = try #require(try StoreModel.read(location)?.cachedModel)
            let (schema, layout) = try StoreReader.read(location) { reader in
                (try Schema(reader), StoreLayout(model).usingJoinTableNames(of: try DatabaseSchema(reader)))
            }
            // No table was found under a name that no rule gives it.
            #expect(layout.joinTables == StoreLayout(model, rule: layout.rule).joinTables, "\(path)")
            let found = schema.columns.filter { !Schema.isOwn($0.key) }
            #expect(found == layout.columns, "\(path)")
            for (name, statement) in layout.statements {
                tables += 1
                // A migration may leave a table's columns in another order.
                if schema.statements[name] == statement { sameStatements += 1 }
            }
            let numbers = layout.numbers.entities.map { entity in
                let parent = entity.superentityName.map { layout.numbers.number(of: $0) } ?? 0
                return [String(layout.numbers.number(of: entity.name)), entity.name, String(parent)]
            }
            // A migration in place keeps the former name of a renamed entity.
            #expect(schema.entities.map { [$0[0], $0[2]] } == numbers.map { [$0[0], $0[2]] }, "\(path)")
        }
        #expect(tables > 0)
        #expect(Double(sameStatements) >= Double(tables) * 0.8, "\(sameStatements) of \(tables) tables")
    }
}

extension StoreLayout {
    fileprivate var columns: [String: [String: String]] {
        var found: [String: [String: String]] = [:]
        for table in tables {
            found[table.name] = ["Z_PK": "INTEGER", "Z_ENT": "INTEGER", "Z_OPT": "INTEGER"]
            for column in table.columns { found[table.name]?[column.name] = column.type }
        }
        for table in joinTables {
            for side in [table.owner, table.inverse] {
                found[table.name, default: [:]][side.column] = "INTEGER"
                if let order = side.orderColumn { found[table.name]?[order] = "INTEGER" }
            }
        }
        return found
    }

    fileprivate var statements: [String: String] {
        let all = tables.map { ($0.name, $0.creation) } + joinTables.map { ($0.name, $0.creation) }
        return Dictionary(all, uniquingKeysWith: { first, _ in first })
    }
}
