import ManagedObjectModels
import StoreMigration
import SystemPackage

/// Makes a Core Data store ready before an app opens it.
///
///     NotesUpgrade STORE MODEL
///
/// MODEL is the app's `.xcdatamodeld` or `.momd`. The store is made when there is none, and migrated to the model's current
/// version when it is of an older one.
@main
struct NotesUpgrade {
    static func main() async throws {
        let arguments = CommandLine.arguments
        guard arguments.count == 3 else {
            print("usage: NotesUpgrade STORE MODEL")
            return
        }
        let model = try ModelBundle(reading: FilePath(arguments[2]))
        var options = StoreOptions()
        options.deadline = .seconds(10)
        let preparation = try await model.prepareStore(at: FilePath(arguments[1]), options: options) {
            fraction, doing in
            print("\(Int(fraction * 100)) % \(doing)")
        }
        switch preparation {
        case .upToDate: print("the store is of \(model.current.name)")
        case .created: print("made an empty store of \(model.current.name)")
        case .migrated(let versions, let notes):
            print("migrated to " + versions.joined(separator: ", then "))
            for note in notes { print(note) }
        }
        // Now the app opens the store.
    }
}
