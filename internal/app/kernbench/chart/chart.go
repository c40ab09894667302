// Package chart draws reports of kernbench as SVG. It is apart from them, since what draws brings fonts of 8 MB into a program.
package chart

import (
	"bytes"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/millrace/millrace/internal/app/kernbench"
)

const (
	plotWidth  = 16 * vg.Centimeter
	plotHeight = 10 * vg.Centimeter
)

// strokes are the colours of the paths: alike for the CPU's and for the GPU's.
var strokes = map[string]color.Color{
	kernbench.PathOne:      color.RGBA{0x90, 0xb4, 0xdc, 0xff},
	kernbench.PathAll:      color.RGBA{0x1f, 0x4e, 0x8c, 0xff},
	kernbench.PathRing:     color.RGBA{0xf0, 0xa0, 0x50, 0xff},
	kernbench.PathHost:     color.RGBA{0xc8, 0x50, 0x14, 0xff},
	kernbench.PathResident: color.RGBA{0x50, 0x9b, 0x46, 0xff},
}

// Draw draws a report into SVG files of a folder that is there: of each operation OP-rate.svg, packets per
// second by size, and of those with latencies OP-latency.svg and OP-crossover.svg, time and packets per
// second by the batch's size. The same report results in the same files.
func Draw(r *kernbench.Report, dir string) error {
	for _, name := range kernbench.Operations() {
		if err := rates(r, dir, name); err != nil {
			return fmt.Errorf("plots: %w", err)
		}
		if err := latency(r, dir, name); err != nil {
			return fmt.Errorf("plots: %w", err)
		}
	}
	return nil
}

// chart is a plot with logarithmic ordinate and a line for each path.
type chart struct {
	*plot.Plot
	empty bool
}

func newChart(title, x, y string) *chart {
	c := &chart{plot.New(), true}
	c.Title.Text, c.X.Label.Text, c.Y.Label.Text = title, x, y
	c.Y.Scale, c.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	c.Legend.Top, c.Legend.Left = true, true
	c.Add(plotter.NewGrid())
	return c
}

// line adds the points of a path; points of 0 are none.
func (c *chart) line(path, label string, dashed bool, points plotter.XYs) error {
	points = slices.DeleteFunc(points, func(p plotter.XY) bool { return p.Y <= 0 })
	if len(points) == 0 {
		return nil
	}
	l, s, err := plotter.NewLinePoints(points)
	if err != nil {
		return err
	}
	l.Color, s.Color = strokes[path], strokes[path]
	l.Width = vg.Points(1.5)
	s.Shape = draw.CircleGlyph{}
	if dashed {
		l.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
	}
	c.Add(l, s)
	c.Legend.Add(label, l, s)
	c.empty = false
	return nil
}

// write draws the chart into a file, unless it has no line.
func (c *chart) write(file string) error {
	if c.empty {
		return nil
	}
	c.Y.Max *= 8 // room for the legend
	canvas := vgsvg.New(plotWidth, plotHeight)
	c.Draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}

func rates(r *kernbench.Report, dir, op string) error {
	c := newChart(op+": rate by size", "size of packets, bytes", "packets per second")
	var sizes []string
	lines := map[string]plotter.XYs{}
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Op != op || row.Error != "" {
			continue
		}
		for _, f := range row.Figures {
			lines[f.Path] = append(lines[f.Path], plotter.XY{X: float64(len(sizes)), Y: f.PacketsPerSecond})
		}
		sizes = append(sizes, row.Size)
	}
	for _, p := range kernbench.Paths() {
		if err := c.line(p, kernbench.Column(p), false, lines[p]); err != nil {
			return err
		}
	}
	if c.empty {
		return nil
	}
	c.NominalX(sizes...)
	return c.write(filepath.Join(dir, op+"-rate.svg"))
}

func latency(r *kernbench.Report, dir, op string) error {
	times := newChart(op+": time of a batch", "packets of the batch", "microseconds")
	rates := newChart(op+": where the GPU overtakes a core", "packets of the batch", "packets per second, one batch at a time")
	for _, c := range []*chart{times, rates} {
		c.X.Scale, c.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	for _, p := range kernbench.Paths() {
		var p50, p99, rate plotter.XYs
		for _, l := range r.Latency {
			if l.Op != op || l.Path != p || l.N == 0 {
				continue
			}
			x := float64(l.Batch)
			p50, p99 = append(p50, plotter.XY{X: x, Y: l.P50}), append(p99, plotter.XY{X: x, Y: l.P99})
			rate = append(rate, plotter.XY{X: x, Y: x / l.P50 * 1e6})
		}
		for _, err := range []error{
			times.line(p, kernbench.Column(p)+", p50", false, p50),
			times.line(p, kernbench.Column(p)+", p99", true, p99),
			rates.line(p, kernbench.Column(p), false, rate),
		} {
			if err != nil {
				return err
			}
		}
	}
	if err := times.write(filepath.Join(dir, op+"-latency.svg")); err != nil {
		return err
	}
	return rates.write(filepath.Join(dir, op+"-crossover.svg"))
}
