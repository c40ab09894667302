package cuda

import (
	"bytes"
	"regexp"
	"strconv"
)

// entry is a kernel as its PTX declares it.
type entry struct {
	name  string
	bytes int // of the one parameter
}

// declaration is the head of a kernel:
//
//	.visible .entry gk_read(
//		.param .align 8 .b8 gk_read_param_0[32]
//	)
var declaration = regexp.MustCompile(`(?m)^\s*\.visible \.entry (\w+)\(\s*\.param \.align \d+ \.b8 \w+\[(\d+)\]\s*\)`)

// entries lists the kernels of a module.
func entries(ptx []byte) (all []entry) {
	for _, m := range declaration.FindAllSubmatch(bytes.TrimRight(ptx, "\x00"), -1) {
		n, _ := strconv.Atoi(string(m[2]))
		all = append(all, entry{string(m[1]), n})
	}
	return all
}
