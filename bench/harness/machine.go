package harness

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sort"
	"strings"
	"time"
)

// Machine describes where and when figures were taken.
type Machine struct {
	Date        string   `json:"date"` // UTC
	Commit      string   `json:"commit"`
	CPU         string   `json:"cpu"`
	Cores       int      `json:"cores"`                    // CPUs
	Physical    int      `json:"physical_cores,omitempty"` // that these are on, where they are hyperthreads
	Virtual     bool     `json:"virtual"`
	Kernel      string   `json:"kernel"`
	Go          string   `json:"go"`
	Memory      string   `json:"memory"`
	HugePages   string   `json:"huge_pages"`
	Mitigations []string `json:"mitigations"` // what is not plain "Not affected"
	LoadBefore  string   `json:"load_before"` // averages of 1, 5 and 15 minutes
	LoadAfter   string   `json:"load_after"`
}

func describeMachine(root string) Machine {
	cpu := ReadFile("/proc/cpuinfo")
	mem := ReadFile("/proc/meminfo")
	m := Machine{
		Date:        time.Now().UTC().Format(time.RFC3339),
		Commit:      Commit(root),
		CPU:         field(cpu, "model name"),
		Cores:       runtime.NumCPU(),
		Virtual:     strings.Contains(field(cpu, "flags"), "hypervisor"),
		Kernel:      ReadFile("/proc/sys/kernel/osrelease"),
		Go:          runtime.Version(),
		Memory:      field(mem, "MemTotal"),
		HugePages:   field(mem, "HugePages_Total") + " reserved, transparent " + chosen(ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")),
		Mitigations: mitigations(),
		LoadBefore:  loadAverage(),
	}
	if cores := Cores(CPUs()); cores < m.Cores {
		m.Physical = cores
	}
	return m
}

func (m *Machine) after() { m.LoadAfter = loadAverage() }

func loadAverage() string {
	f := strings.Fields(ReadFile("/proc/loadavg"))
	return strings.Join(f[:min(3, len(f))], " ")
}

// Commit returns the short hash of what this program was built from, with "+changes" where tracked files differed from it. `go run`
// does not enter that, and then it is the hash of the checkout.
func Commit(root string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		if hash := setting(info, "vcs.revision"); hash != "" {
			return hash[:min(len(hash), 12)] + map[string]string{"true": "+changes"}[setting(info, "vcs.modified")]
		}
	}
	hash, err := exec.Command("git", "-C", root, "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	s := strings.TrimSpace(string(hash))
	if exec.Command("git", "-C", root, "diff", "--quiet", "HEAD").Run() != nil {
		s += "+changes"
	}
	return s
}

// setting returns a setting of a build, "" where it is not known.
func setting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

func mitigations() []string {
	var on []string
	paths, _ := filepath.Glob("/sys/devices/system/cpu/vulnerabilities/*")
	sort.Strings(paths)
	for _, p := range paths {
		if s := ReadFile(p); s != "Not affected" {
			on = append(on, filepath.Base(p)+": "+s)
		}
	}
	return on
}

// ModuleVersion returns the version of a module that this program is built with.
func ModuleVersion(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == path {
				return m.Version
			}
		}
	}
	return "of unknown version"
}

// field returns the value of the first "name : value" line.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// chosen returns the word in brackets.
func chosen(s string) string {
	_, s, _ = strings.Cut(s, "[")
	s, _, _ = strings.Cut(s, "]")
	return s
}

// ReadFile returns a file without the space around it, or "unknown".
func ReadFile(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}
