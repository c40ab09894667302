package kernbench

import "fmt"

// openGPU adds the paths of the GPU.
func (b *bench) openGPU() error {
	if b.cfg.Engine == "cuda" {
		return fmt.Errorf("no GPU: there is no binding yet")
	}
	return nil
}
