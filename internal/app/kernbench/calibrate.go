package kernbench

import (
	"context"
	"errors"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/acl"
	"github.com/millrace/millrace/gpukern/choose"
	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/gpukern/literal"
	"github.com/millrace/millrace/gpukern/lpm"
)

// Sizes of the tables that Calibrate looks packets up in: usual ones, compiled in milliseconds.
const (
	probeRules    = 1000
	probeRoutes   = 10_000
	probeLiterals = 1000
)

// probedOps are the operations that it measures: the operations of the gateway, the whole header pass, and that with a
// search of payloads.
var probedOps = []gpukern.Ops{gpukern.OpParse | gpukern.OpChecksum, gpukern.OpsHeader, gpukern.OpsHeader | gpukern.OpLiterals}

// Calibrate measures a core against the GPU with packets of some sizes, as the engine "auto" does at its start.
func Calibrate(o cuda.Options, sizes []int) (_ []gpukern.CalibrationReport, err error) {
	var t gpukern.Tables
	if t.ACL, err = acl.Compile(Rules(1, probeRules)); err != nil {
		return nil, err
	}
	if t.Routes, err = lpm.Compile(Routes(1, probeRoutes, probeRoutes/10)); err != nil {
		return nil, err
	}
	if t.Literals, err = literal.Compile(Literals(1, probeLiterals, nil)); err != nil {
		return nil, err
	}
	opener, err := choose.NewOpener(choose.OpenConfig{Kind: choose.KindCUDA, Device: o})
	if err != nil {
		return nil, err
	}
	choices, err := opener.Calibrate(context.Background(), gpukern.Config{Tables: t}, choose.Plan{Ops: probedOps, Sizes: sizes})
	return gpukern.CalibrationReports(choices), errors.Join(err, opener.Close())
}
