"""The capture stage: what Dynamo and AOTAutograd make of a case. Torch is imported on first use."""
