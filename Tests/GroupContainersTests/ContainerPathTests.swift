import GroupContainers
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@Suite struct ContainerPathTests {
    @Test(arguments: [
        ("flatpak:com.example.Notes/data/Notes.sqlite", "/home/u/.var/app/com.example.Notes/data/Notes.sqlite"),
        ("flatpak:com.example.Notes/Notes", "/home/u/.var/app/com.example.Notes/Notes"),
        ("flatpak:com.пример.Заметки/данные/数据 库", "/home/u/.var/app/com.пример.Заметки/данные/数据 库"),
        ("snap:notes/common/Notes.sqlite", "/home/u/snap/notes/common/Notes.sqlite"),
        ("snap:notes/current/.local/share/Notes", "/home/u/snap/notes/current/.local/share/Notes"),
        ("snap:notes_two/17/Notes", "/home/u/snap/notes_two/17/Notes"),
        ("snap:notes/x1/Notes", "/home/u/snap/notes/x1/Notes"),
    ])
    func expandsAShortForm(_ text: String, _ path: String) throws {
        #expect(try ContainerPath(text, home: "/home/u")?.path == FilePath(path))
    }

    @Test(arguments: ["/a/b", "~/a", "flatpak", "snap/notes", "Flatpak:a/b", "", "other:a/b"])
    func leavesOtherTextAlone(_ text: String) throws {
        #expect(try ContainerPath(text, home: "/home/u") == nil)
    }

    @Test(arguments: [
        "flatpak:", "flatpak:/", "flatpak:app", "flatpak:app/", "flatpak:/etc/passwd", "flatpak:../../etc/passwd",
        "flatpak:app/../../other/x", "flatpak:./x", "flatpak:app//x", "flatpak:app/x\u{0}y", "snap:", "snap:notes",
        "snap:notes/common", "snap:notes/Notes.sqlite", "snap:notes/data/Notes", "snap:notes/x/Notes",
        "snap:notes/-1/Notes", "snap:notes/common/..", "snap:notes/current/",
    ])
    func refusesWhatLeadsElsewhere(_ text: String) {
        #expect { try ContainerPath(text, home: "/home/u") } throws: { error in
            (error as? ContainerPath.Failure).map { !$0.message.isEmpty && !$0.remedy.isEmpty } == true
        }
    }

    @Test(arguments: [nil, "", "relative"])
    func needsAHome(_ home: String?) {
        #expect(throws: ContainerPath.Failure.self) { try ContainerPath("flatpak:a/b", home: home) }
    }
}
