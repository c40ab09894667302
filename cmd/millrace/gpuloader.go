//go:build cuda

package main

import (
	_ "github.com/millrace/millrace/gpukern/cuda/loader" // GPUs: the program is linked dynamically
	"github.com/millrace/millrace/internal/app/kernbench/chart"
)

func init() { drawCharts = chart.Draw }
