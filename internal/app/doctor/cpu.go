package doctor

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/gpukern/aead"
	"github.com/millrace/millrace/gpukern/digest"
)

// vectors are the instruction sets that the CPU engine has a form for or that are worth knowing, by
// their names in /proc/cpuinfo.
var vectors = []string{"sse4_2", "pclmulqdq", "aes", "avx2", "avx512f", "avx512bw", "avx512vl", "avx512ifma", "vaes", "vpclmulqdq", "sha_ni", "gfni", "asimd", "sve"}

// cpu looks at what the CPUs can do and at how they are shared.
func (x *examination) cpu() {
	info := x.text("proc/cpuinfo")
	x.rep.CPUs = strings.Count("\n"+info, "\nprocessor")
	model := x.field("proc/cpuinfo", "model name")
	if model == "" {
		model = "unknown model"
	}
	x.add(Check{Area: "cpu", Name: "model", Status: OK, Found: fmt.Sprintf("%d x %s", x.rep.CPUs, model)})

	flags := " " + x.field("proc/cpuinfo", "flags") + x.field("proc/cpuinfo", "Features") + " "
	var has []string
	for _, v := range vectors {
		if strings.Contains(flags, " "+v+" ") {
			has = append(has, v)
		}
	}
	c := Check{Area: "cpu", Name: "vector instructions", Status: OK, Found: strings.Join(has, " ")}
	if !strings.Contains(flags, " avx2 ") {
		c.Status = Warn
		c.Found = strings.TrimSpace(c.Found + " (no avx2: checksums run in the plain Go form)")
	}
	x.add(c)
	x.add(Check{Area: "cpu", Name: "ciphers", Status: OK, Found: forms()})
	x.isolated()
	x.governor()
}

// forms lists the implementations that this process has of ciphers and hashes of batches.
func forms() string {
	var list []string
	c, d := aead.NewCPU(), digest.NewCPU()
	for _, a := range []aead.Algorithm{aead.AES128GCM, aead.AES256GCM, aead.ChaCha20Poly1305} {
		list = append(list, fmt.Sprintf("%v: %v", a, c.Form(a)))
	}
	return strings.Join(append(list, fmt.Sprintf("%v: %v", digest.SHA256, d.Form(digest.SHA256))), ", ")
}

func (x *examination) isolated() {
	c := Check{Area: "cpu", Name: "isolated CPUs", Status: OK, Found: "none: loops share their CPUs with other programs"}
	if cpus := x.text("sys/devices/system/cpu/isolated"); cpus != "" {
		c.Found = cpus
	}
	x.add(c)
}

// governor reports a governor that saves power: a core that slows down while it waits makes
// the first packets late.
func (x *examination) governor() {
	const file = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
	g := x.text(file)
	if g == "" {
		return // a virtual machine, or a kernel that leaves it to the firmware
	}
	c := Check{Area: "cpu", Name: "frequency governor", Status: OK, Found: g}
	if g == "powersave" {
		c.Status, c.Remedy = Warn, "sudo cpupower frequency-set -g performance"
	}
	x.add(c)
}
