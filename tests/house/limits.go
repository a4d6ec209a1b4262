package house

// The limits on size. Past a Soft limit a thing needs a row in Excused; past a Hard one nothing helps.
const (
	SoftFileLines = 500
	HardFileLines = 800
	SoftFuncLines = 60 // only noted
	HardFuncLines = 100
	MaxParameters = 5 // a context and a *testing.T aside
	MaxResults    = 2 // an error at the end aside
)

// Excused lists what may break a rule, with the reason. A row is "length" with a file or a function,
// "signature" with a function, or "variable" with a package variable; functions and variables are written
// "folder.Name", methods "folder.Type.Name".
func Excused() map[string]string {
	const operands = "the operands of one operation, as ops.Backend names them"
	return map[string]string{
		"signature engine/cpu.Backend.Attend":            operands,
		"signature engine/cpu.Backend.SelectBlocks":      operands,
		"signature engine/cpu.Backend.Conv":              operands,
		"signature engine/cpu.Backend.DeltaGates":        operands,
		"signature engine/cpu.Backend.DeltaScan":         operands,
		"signature engine/cpu.batch.Attend":              operands,
		"signature engine/cpu.batch.SelectBlocks":        operands,
		"signature engine/cpu.batch.Conv":                operands,
		"signature engine/cpu.batch.DeltaGates":          operands,
		"signature engine/cpu.batch.DeltaScan":           operands,
		"signature engine/gpu.Backend.Attend":            operands,
		"signature engine/gpu.Backend.SelectBlocks":      operands,
		"signature engine/oracle.forced.SelectBlocks":    operands,
		"signature engine/oracle.recording.SelectBlocks": operands,
		"signature engine/gpu.Backend.Conv":              operands,
		"signature engine/gpu.Backend.DeltaGates":        operands,
		"signature engine/gpu.Backend.DeltaScan":         operands,
		"signature engine/gpu.encoding.chooseRows":       operands,
		"signature engine/weights.Experts.At":            "gate, up and down are the three matrices of one record",
		"signature engine/weights.Packed.Expert":         "gate, up and down are the three matrices of one record",
	}
}
