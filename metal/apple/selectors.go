//go:build (darwin && arm64) || (linux && (amd64 || arm64))

package apple

// selectors are the messages that the package sends. Their comments give what they return.
type selectors struct {
	// NSObject
	retain, release, new, respondsToSelector sel
	// NSString, NSError, NSArray, NSDictionary
	utf8String, stringWithUTF8String           sel
	domain, code, localizedDescription         sel
	userInfo, objectForKey, count, objectAtIdx sel
	// MTLDevice
	name, maxBufferLength, recommendedMaxWorkingSetSize, hasUnifiedMemory, maxThreadgroupMemoryLength sel
	newLibrary, newPipeline, newBuffer, newBufferNoCopy, newQueue, newSharedEvent, newResidencySet    sel // owned
	// MTLCompileOptions, MTLFunctionConstantValues
	setLanguageVersion, setFastMathEnabled, setConstantValue sel
	// MTLLibrary, MTLComputePipelineState
	functionNames, newFunction, newFunctionConstants             sel
	maxTotalThreads, threadExecutionWidth, staticThreadgroupSize sel
	// MTLBuffer, MTLSharedEvent
	contents                                           sel
	signaledValue, setSignaledValue, waitUntilSignaled sel
	setErrorOptions, setLabel, label, errorState       sel // MTLCommandBufferDescriptor, encoders and their errors
	commandBuffer                                      sel // MTLCommandQueue: autoreleased
	computeEncoder, encodeWait, encodeSignal, commit   sel // MTLCommandBuffer: the encoder is autoreleased
	waitUntilCompleted, status, err, gpuStart, gpuEnd  sel
	setPipeline, setBuffer, setBytes, setThreadgroup   sel // MTLComputeCommandEncoder
	dispatch, endEncoding                              sel
	addResidencySet, addAllocation, removeAllocation   sel // MTLCommandQueue, MTLResidencySet
	requestResidency, endResidency                     sel
}

func (s *selectors) register(r *objc) {
	for name, at := range map[string]*sel{
		"retain":                              &s.retain,
		"release":                             &s.release,
		"new":                                 &s.new,
		"respondsToSelector:":                 &s.respondsToSelector,
		"UTF8String":                          &s.utf8String,
		"stringWithUTF8String:":               &s.stringWithUTF8String,
		"domain":                              &s.domain,
		"code":                                &s.code,
		"localizedDescription":                &s.localizedDescription,
		"userInfo":                            &s.userInfo,
		"objectForKey:":                       &s.objectForKey,
		"count":                               &s.count,
		"objectAtIndex:":                      &s.objectAtIdx,
		"name":                                &s.name,
		"maxBufferLength":                     &s.maxBufferLength,
		"recommendedMaxWorkingSetSize":        &s.recommendedMaxWorkingSetSize,
		"hasUnifiedMemory":                    &s.hasUnifiedMemory,
		"maxThreadgroupMemoryLength":          &s.maxThreadgroupMemoryLength,
		"newLibraryWithSource:options:error:": &s.newLibrary,
		"newComputePipelineStateWithFunction:error:":           &s.newPipeline,
		"newBufferWithLength:options:":                         &s.newBuffer,
		"newBufferWithBytesNoCopy:length:options:deallocator:": &s.newBufferNoCopy,
		"newCommandQueueWithMaxCommandBufferCount:":            &s.newQueue,
		"newSharedEvent":                              &s.newSharedEvent,
		"newResidencySetWithDescriptor:error:":        &s.newResidencySet,
		"setLanguageVersion:":                         &s.setLanguageVersion,
		"setFastMathEnabled:":                         &s.setFastMathEnabled,
		"setConstantValue:type:atIndex:":              &s.setConstantValue,
		"functionNames":                               &s.functionNames,
		"newFunctionWithName:":                        &s.newFunction,
		"newFunctionWithName:constantValues:error:":   &s.newFunctionConstants,
		"maxTotalThreadsPerThreadgroup":               &s.maxTotalThreads,
		"threadExecutionWidth":                        &s.threadExecutionWidth,
		"staticThreadgroupMemoryLength":               &s.staticThreadgroupSize,
		"contents":                                    &s.contents,
		"signaledValue":                               &s.signaledValue,
		"setSignaledValue:":                           &s.setSignaledValue,
		"waitUntilSignaledValue:timeoutMS:":           &s.waitUntilSignaled,
		"setErrorOptions:":                            &s.setErrorOptions,
		"setLabel:":                                   &s.setLabel,
		"label":                                       &s.label,
		"errorState":                                  &s.errorState,
		"commandBufferWithDescriptor:":                &s.commandBuffer,
		"computeCommandEncoder":                       &s.computeEncoder,
		"encodeWaitForEvent:value:":                   &s.encodeWait,
		"encodeSignalEvent:value:":                    &s.encodeSignal,
		"commit":                                      &s.commit,
		"waitUntilCompleted":                          &s.waitUntilCompleted,
		"status":                                      &s.status,
		"error":                                       &s.err,
		"GPUStartTime":                                &s.gpuStart,
		"GPUEndTime":                                  &s.gpuEnd,
		"setComputePipelineState:":                    &s.setPipeline,
		"setBuffer:offset:atIndex:":                   &s.setBuffer,
		"setBytes:length:atIndex:":                    &s.setBytes,
		"setThreadgroupMemoryLength:atIndex:":         &s.setThreadgroup,
		"dispatchThreadgroups:threadsPerThreadgroup:": &s.dispatch,
		"endEncoding":                                 &s.endEncoding,
		"addResidencySet:":                            &s.addResidencySet,
		"addAllocation:":                              &s.addAllocation,
		"removeAllocation:":                           &s.removeAllocation,
		"requestResidency":                            &s.requestResidency,
		"endResidency":                                &s.endResidency,
	} {
		*at = r.selector(name)
	}
}
