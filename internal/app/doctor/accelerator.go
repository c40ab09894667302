package doctor

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/pmd/dpdk"
)

// libraryDirs are the folders that the loader searches: LD_LIBRARY_PATH, those of ld.so.conf, and
// the ones built in.
func (x *examination) libraryDirs() []string {
	dirs := strings.FieldsFunc(x.Env("LD_LIBRARY_PATH"), func(r rune) bool { return r == ':' })
	confs, _ := fs.Glob(x.FS, "etc/ld.so.conf.d/*.conf")
	for _, conf := range append(confs, "etc/ld.so.conf") {
		for line := range strings.Lines(x.text(conf)) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "/") {
				dirs = append(dirs, line)
			}
		}
	}
	return append(dirs, "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu",
		"/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib", "/usr/lib/wsl/lib")
}

// library returns the path of the first library whose name matches a pattern.
func (x *examination) library(pattern string) string {
	for _, dir := range x.libraryDirs() {
		found, _ := fs.Glob(x.FS, path.Join(strings.Trim(path.Clean(dir), "/"), pattern))
		if len(found) > 0 {
			return "/" + slices.Max(found)
		}
	}
	return ""
}

// nvidiaVendor is the PCI vendor number of NVIDIA.
const nvidiaVendor = "0x10de"

// nvidiaDevices counts NVIDIA's display and 3D controllers on the PCI bus (class 0x03).
func (x *examination) nvidiaDevices() (n int) {
	vendors, _ := fs.Glob(x.FS, "sys/bus/pci/devices/*/vendor")
	for _, v := range vendors {
		if x.text(v) == nvidiaVendor && strings.HasPrefix(x.text(path.Join(path.Dir(v), "class")), "0x03") {
			n++
		}
	}
	return n
}

var driverVersion = regexp.MustCompile(`Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s`)

// cuda checks the GPU, its driver, its device files and the driver library, and reports what engines use.
func (x *examination) cuda() {
	c := Check{Area: "gpu", Name: "CUDA", Status: OK}
	nodes, _ := fs.Glob(x.FS, "dev/nvidia[0-9]*")
	lib := x.library("libcuda.so.1")
	driver, why := "", "" // why no GPU can be used
	if m := driverVersion.FindStringSubmatch(x.text("proc/driver/nvidia/version")); m != nil {
		driver = m[1]
	}
	switch {
	case driver == "" && len(nodes) == 0 && x.nvidiaDevices() == 0:
		why = "no NVIDIA device"
		c.Found = why
	case driver == "":
		why = "an NVIDIA device without a driver"
		c.Status, c.Found = Warn, why
		c.Remedy = "sudo apt install nvidia-driver"
	case len(nodes) == 0:
		why = "driver " + driver + ", but no /dev/nvidia*"
		c.Status, c.Found = Warn, why
		c.Remedy = "sudo nvidia-modprobe -u -c 0"
	case lib == "":
		why = "driver " + driver + ", but libcuda.so.1 is not in the library path"
		c.Status, c.Found = Warn, why
		c.Remedy = "sudo apt install libcuda1"
	default:
		c.Found = "driver " + driver + ", " + lib + ", " + strings.Join(slash(nodes), " ")
	}
	x.add(c)
	remedy := ""
	switch {
	case lib != "" && x.NoGPUs:
		why, remedy = "this program is static, built without support for GPUs", "millrace-cuda doctor"
	case x.NoGPUs:
		why += "; this program is static, built without support for GPUs"
	case x.GPU != nil && lib != "":
		why = x.kernels()
	}
	if why != "" {
		x.add(Check{Area: "gpu", Name: "engine", Status: OK, Found: "CPU only: " + why, Remedy: remedy})
	}
}

// kernelRemedy stands beside errors without a remedy of their own, such as a wrong result.
const kernelRemedy = "nvidia-smi -q shows the GPU's errors; until it works, engine: cpu and --engine cpu do without it"

// kernels runs the kernels on the GPU, since the files alone prove nothing. It returns why the GPU is not used,
// "" if it is.
func (x *examination) kernels() (why string) {
	g, err := x.GPU()
	if g.Name != "" {
		found := fmt.Sprintf("%s, compute capability %.1f, %s of memory, driver for CUDA %s", g.Name, float64(g.Capability)/10, size(g.Memory), g.Driver)
		if g.Bus != "" {
			found += ", " + g.Bus
		}
		x.add(Check{Area: "gpu", Name: "device", Status: OK, Found: found})
	}
	c := Check{Area: "gpu", Name: "kernels", Status: OK}
	if err != nil {
		c.Status, c.Found, c.Remedy = Warn, strings.TrimPrefix(err.Error(), "cuda: "), kernelRemedy
		if g.Remedy != "" {
			c.Found, c.Remedy = strings.TrimSuffix(c.Found, ": "+g.Remedy), g.Remedy
		}
		x.add(c)
		return "the GPU failed the check"
	}
	c.Found = fmt.Sprintf("%d modules compiled, %d results compared and correct", g.Modules, g.Verified)
	if g.Batch != "" {
		c.Found += ", " + g.Batch
	}
	x.add(c)
	return x.calibrations(g.Calibrations)
}

// calibrations reports the operations that the GPU is faster at. It returns why it is not used, "" if it is.
func (x *examination) calibrations(all []gpukern.CalibrationReport) (why string) {
	if len(all) > 0 {
		why = "the GPU is not faster in any measured case"
	}
	for _, v := range all {
		x.rep.Calibrations = append(x.rep.Calibrations, v)
		x.add(Check{Area: "gpu", Name: "calibration", Status: OK, Found: v.Text})
		if v.BreakEven > 0 {
			why = ""
		}
	}
	return why
}

// slash returns absolute paths of a file system's names.
func slash(paths []string) []string {
	abs := make([]string, len(paths))
	for i, p := range paths {
		abs[i] = "/" + p
	}
	return abs
}

// dpdk looks for DPDK, which only its driver needs. The ABI number of a library is the year of the
// release after: librte_eal.so.24 is DPDK 23.11.
func (x *examination) dpdk() {
	c := Check{Area: "dpdk", Name: "DPDK", Status: OK, Found: "not installed: only devices named dpdk: need it (" + dpdk.InstallCommand + ", then " + dpdk.BuildCommand + ")"}
	lib := x.library("librte_eal.so.*")
	if lib != "" {
		c.Found = lib
		_, abi, _ := strings.Cut(path.Base(lib), ".so.")
		major, _, _ := strings.Cut(abi, ".")
		if n, err := strconv.Atoi(major); err == nil {
			c.Found = "version " + strconv.Itoa(n-1) + ".11, " + lib
		}
	}
	for _, dir := range []string{"usr/bin", "usr/local/bin", "usr/sbin"} {
		if p := dir + "/dpdk-testpmd"; x.exists(p) {
			c.Found += ", /" + p
		}
	}
	if lib != "" {
		c.Found += "; " + x.shim()
	}
	x.add(c)
}

// shim reports what lets this program use the DPDK that is installed.
func (x *examination) shim() string {
	env, program := "", ""
	if x.Env != nil {
		env = x.Env(dpdk.ShimVariable)
	}
	if p, err := fs.ReadLink(x.FS, "proc/self/exe"); err == nil {
		program = p
	}
	f := dpdk.Find(x.FS, env, program)
	switch {
	case x.NoGPUs:
		return "this program is static and loads no libraries: devices named dpdk: are for millrace-cuda"
	case f.Usable():
		return "shim " + f.Shims[0].Path + "; " + x.exceptionPath()
	case len(f.Shims) > 0:
		return fmt.Sprintf("its shim is missing, %s is for DPDK %d.11: %s", f.Shims[0].Path, f.Shims[0].ABI-1, dpdk.BuildCommand)
	}
	return "its shim is missing, which only devices named dpdk: need: " + dpdk.BuildCommand
}

// exceptionPath reports what lets the kernel have what is not claimed of a device of DPDK.
func (x *examination) exceptionPath() string {
	if x.exists("dev/net/tun") {
		return "steers in software, the rest to the kernel by exception="
	}
	return "no exception= for the kernel: /dev/net/tun is missing (modprobe tun)"
}
